"""The program of a later version, in the same source: `python -m tests.support.newer FOLDER up ...`.

Its database has a version more, and each record of its queue a fact that no program before knows.
"""

from __future__ import annotations

import shutil
import sys
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import topmast

VERSION, SCHEMA = "99.0.0", "9999"
MIGRATION = f'''
revision = "{SCHEMA}"
down_revision = "{{before}}"


def upgrade() -> None:
    pass
'''


def become_newer(folder: Path) -> None:
    """Change this process; the folder is for its migrations."""
    topmast.__version__ = VERSION  # before it is looked at
    import msgspec
    from msgspec.structs import replace

    from topmast.adapters.store import postgresql, schema
    from topmast.fast.machine import Fact
    from topmast.fast.queue import GlobalQueue
    from topmast.runtime import codec

    postgresql.LOCK_WAIT_S = 600.0  # it stays where it is in the queue of candidates
    shutil.copytree(schema.MIGRATIONS, folder, dirs_exist_ok=True)
    script = MIGRATION.format(before=schema.VERSIONS[-1])
    (folder / "versions" / f"v{SCHEMA}_next.py").write_text(script)
    schema.MIGRATIONS, schema.VERSIONS = folder, (*schema.VERSIONS, SCHEMA)  # type: ignore[assignment]
    schema.migrate.__defaults__ = (SCHEMA,)

    class Foreseen(Fact, frozen=True):
        facts: int

    def handle(queue: GlobalQueue, event: Any, now: float, known: Any = GlobalQueue.handle) -> Any:
        found = known(queue, event, now)
        more = (Foreseen(len(found.facts)),) if found.facts else ()
        return replace(found, facts=(*found.facts, *more))

    GlobalQueue.handle = handle  # type: ignore[assignment,method-assign]
    GlobalQueue.appliers = {**GlobalQueue.appliers, Foreseen: lambda queue, fact, event: None}
    facts: Any = reduce(or_, GlobalQueue.appliers)
    codec._facts["queue"] = msgspec.json.Decoder(list[facts])


if __name__ == "__main__":
    become_newer(Path(sys.argv[1]))
    from topmast.app import main

    sys.argv[1:2] = []
    main()
