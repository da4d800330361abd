"""Record the story anew, after a change of decisions that was meant:

    python -m tests.golden.record

Look at the difference before committing it. At a release, copy `current` to a folder named after
the version: what was decided then must lead to the same end for ever.
"""

from __future__ import annotations

from tests.golden import files
from tests.golden.story import tell


def main() -> None:
    """Write the folder `current`."""
    world = tell()
    files.write(files.CURRENT, world)
    sizes = {path.name: path.stat().st_size for path in sorted(files.CURRENT.iterdir())}
    print(f"{len(world.journal.written)} records, {len(world.inputs)} inputs: {sizes}")


if __name__ == "__main__":
    main()
