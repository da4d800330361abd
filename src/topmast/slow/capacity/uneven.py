"""Large models with hosts that differ in GPUs, or domains that span datacenters: split into even
pieces.

Each piece is asked for its part, by GPUs, of every capacity, and solved by prices. Together the
pieces are an assignment of the whole model; it is priced as such. The bound is that of a linear
relaxation.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from topmast.slow.arrays import Ints
from topmast.slow.capacity.classes import Classes, ModelSolution, cost_of
from topmast.slow.capacity.formulation import formulate
from topmast.slow.capacity.prices import solve_by_prices
from topmast.slow.highs import Effort, solve


def solve_in_pieces(classes: Classes, left_s: Callable[[], float]) -> ModelSolution:
    """The pieces' assignments together, or the present one if that costs less, and a bound."""
    count = classes.have.sum(axis=0)
    stay_cost = cost_of(classes, count)
    supply = float((classes.total * classes.gpus).sum())
    merged = np.zeros_like(count)
    pieces = pieces_of(classes)
    until_s = 0.5 * left_s()
    for cells in pieces:
        part = float((classes.total[cells] * classes.gpus[cells]).sum()) / supply
        piece = replace(
            classes, total=classes.total[cells], have=classes.have[:, :, cells],
            far=classes.far[:, cells], gpus=classes.gpus[cells],
            domain=np.arange(len(cells)), wanted=classes.wanted * part, members={},
        )  # fmt: skip
        merged[:, cells] = solve_by_prices(piece, lambda: left_s() - until_s).count
    if cost_of(classes, merged) < stay_cost:
        count = merged
    relaxed = solve(formulate(classes, whole=False).model, Effort(time_s=left_s(), method="ipm"))
    return ModelSolution(count, max(0.0, relaxed.bound) if np.isfinite(relaxed.bound) else 0.0)


def pieces_of(classes: Classes) -> list[Ints]:
    """Cells of equal GPUs a host, no two of them in one domain: every cell is in one piece."""
    pieces: dict[tuple[int, int], list[int]] = {}
    seen: dict[tuple[int, int], int] = {}
    for e, key in enumerate(zip(classes.gpus.tolist(), classes.domain.tolist(), strict=True)):
        turn = seen.get(key, 0)
        seen[key] = turn + 1
        pieces.setdefault((key[0], turn), []).append(e)
    return [np.array(pieces[key], np.int64) for key in sorted(pieces)]
