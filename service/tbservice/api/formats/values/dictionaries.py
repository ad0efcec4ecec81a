"""Arrow columns of names that repeat: each name is stored once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

DICTIONARY: Final = pa.dictionary(pa.int32(), pa.string())


def dictionary_column(names: Sequence[str], lengths: np.ndarray[Any, Any]) -> pa.Array:
    """Return a dictionary column that repeats each name as often as `lengths` says."""
    codes = {name: code for code, name in enumerate(dict.fromkeys(names))}
    indices = np.repeat(np.array([codes[name] for name in names], np.int32), lengths)
    return pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(list(codes), pa.string()))
