"""Arrow columns of names, or bytes, that repeat: each is stored once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

DICTIONARY: Final = pa.dictionary(pa.int32(), pa.string())
BYTES_DICTIONARY: Final = pa.dictionary(pa.int32(), pa.binary())


def dictionary_column(
    names: Sequence[str | bytes],
    lengths: np.ndarray[Any, Any],
    type_: pa.DictionaryType = DICTIONARY,
) -> pa.Array:
    """Return a dictionary column that repeats each name as often as `lengths` says."""
    codes = {name: code for code, name in enumerate(dict.fromkeys(names))}
    indices = np.repeat(np.array([codes[name] for name in names], np.int32), lengths)
    return pa.DictionaryArray.from_arrays(
        pa.array(indices), pa.array(list(codes), type_.value_type)
    )
