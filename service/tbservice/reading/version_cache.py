"""A cache of this worker for what is read of experiments, valid for one version of each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class VersionCache(Generic[_Key, _Value]):
    """Values that were used last, each with its version, up to a number of bytes.

    A key that names the state which its value was computed from needs no version.

    Args:
        bytes_max: Bytes of all values.
        measure: Returns the bytes of a value, estimated.
    """

    def __init__(self, bytes_max: int, measure: Callable[[_Value], int]) -> None:
        self._bytes_max = bytes_max
        self._measure = measure
        self._lock = threading.Lock()
        self._cached: dict[_Key, tuple[Hashable, int, _Value]] = {}
        self._size = 0

    def find(self, key: _Key, version: Hashable = None) -> _Value | None:
        """Return the value of a key at a version, if it is cached."""
        with self._lock:
            cached = self._cached.pop(key, None)
            if cached is None:
                return None
            if cached[0] != version:
                self._size -= cached[1]
                return None
            self._cached[key] = cached  # now the last to be dropped
            return cached[2]

    def put(self, key: _Key, value: _Value, version: Hashable = None) -> None:
        """Cache a value, unless it alone is too large; drops those that were used longest ago."""
        size = self._measure(value)
        with self._lock:
            self._size -= self._cached.pop(key, (None, 0))[1]
            if size > self._bytes_max:
                return
            self._size += size
            self._cached[key] = version, size, value
            while self._size > self._bytes_max:
                self._size -= self._cached.pop(next(iter(self._cached)))[1]
