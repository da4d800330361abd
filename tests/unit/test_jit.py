"""What numba keeps of kernels is of the code that there is, in whichever file that is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from topmast import jit
from topmast.fast.region import warm
from topmast.fast.region.inventory import allocation_table
from topmast.fast.region.search import kernels, share_packing
from topmast.jit import sources_digest

KERNEL = "from topmast.jit import inner\n\n@inner\ndef one() -> int:\n    return {}\n"


def _digest(folder: Path, files: dict[str, str]) -> str:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    return sources_digest(folder)


def test_every_file_with_kernels_counts(tmp_path: Path) -> None:
    """Another `inner`, in whichever file, and a kernel that numba kept is compiled anew."""
    first = _digest(tmp_path / "a", {"a.py": KERNEL.format(1), "b.py": KERNEL.format(1)})
    other = _digest(tmp_path / "b", {"a.py": KERNEL.format(1), "b.py": KERNEL.format(2)})
    assert first != other


def test_other_files_do_not_count(tmp_path: Path) -> None:
    """A change that no kernel sees costs no time to compile."""
    first = _digest(tmp_path / "a", {"a.py": KERNEL.format(1), "b.py": "WIDTH = 1\n"})
    other = _digest(tmp_path / "b", {"a.py": KERNEL.format(1), "b.py": "WIDTH = 2\n"})
    assert first == other


def test_kernels_are_kept_under_that_digest() -> None:
    """Numba asks for the version before it unpickles anything, so that no stale class is looked for."""
    compiled: Any = kernels.best_place
    folder = Path(kernels.__file__).parents[2]
    assert folder.name == "fast"
    assert sources_digest(folder) in compiled._cache._cache_file._version


def test_python_runs_kernels_until_they_are_compiled() -> None:
    """Every module has the same function under a kernel's name, and then the kernel again."""
    own, count_all = share_packing.fewest_opened, allocation_table.count_all
    share = np.full(2, 600, np.int64)
    wanted = own(share, 2, share, 2)
    jit.interpret("fast")
    try:
        assert jit.is_interpreting()
        assert share_packing.fewest_opened is not own
        assert allocation_table.count_all is not count_all
        found = share_packing.fewest_opened(share, 2, share, 2)
        assert (found, type(found)) == (wanted, type(wanted))
        warm.warm_up()
    finally:
        jit.run_compiled()
    assert not jit.is_interpreting()
    assert (share_packing.fewest_opened, allocation_table.count_all) == (own, count_all)


def test_kernels_are_replaced_while_another_thread_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of modules grows meanwhile, as when a standby opens its database."""

    class Growing(dict[str, Any]):
        def items(self) -> Any:
            for item in super().items():
                self[f"more{len(self)}"] = None
                yield item

    modules = Growing(sys.modules)
    monkeypatch.setattr("sys.modules", modules)
    jit._rename({})
    assert modules
