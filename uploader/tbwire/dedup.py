"""Choice of a step's point: the one with the greatest wall time, then the one that came later.

Storage, scans, digests and the uploader's verification all apply this rule, so that a series has
the same points on both sides. Digests are comparable only because of that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[Any]


def deduplicated_order(
    steps: Column,
    wall_times: Column,
    arrivals: Column | None = None,
    periods: Column | None = None,
) -> npt.NDArray[np.intp]:
    """Return the indices of the points that remain, in step order.

    Args:
        steps: One step per point, in any order.
        wall_times: One wall time per point, never NaN.
        arrivals: A number per point that increases with its arrival; None if points are in order.
        periods: A number per point that does not decrease with wall time. The newest point of each
            period of a step remains, in place of that of the step.
    """
    # lexsort is stable and its last key is the primary one: the remaining point of a step is last.
    keys = (wall_times, steps) if arrivals is None else (arrivals, wall_times, steps)
    order = np.lexsort(keys)
    ordered = steps[order]
    is_last = ordered[1:] != ordered[:-1]
    if periods is not None:
        ordered_periods = periods[order]
        is_last |= ordered_periods[1:] != ordered_periods[:-1]
    return np.asarray(order[np.append(is_last, True)[: len(order)]])
