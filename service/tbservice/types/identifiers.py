"""Ids, the bounds of integers, and array types that all layers use."""

from __future__ import annotations

from typing import Any, Final, NewType

import numpy as np
import numpy.typing as npt

ExperimentId = NewType("ExperimentId", str)
"""128 random bits in base62, 22 characters."""


WorkspaceId = NewType("WorkspaceId", int)


TokenId = NewType("TokenId", str)


UserId = NewType("UserId", str)
"""128 random bits in base62, 22 characters."""


INT64_MAX: Final = 2**63 - 1
"""The maximum of PostgreSQL's bigint, and of every integer in a request."""


Int64s = npt.NDArray[np.int64]


UInt64s = npt.NDArray[np.uint64]


Float64s = npt.NDArray[np.float64]


Booleans = npt.NDArray[np.bool_]


Ranks = npt.NDArray[np.uint8]
"""A column of ranks, 0 to 15; indexed by slot, it has 65,536 elements."""


Json = dict[str, Any]
