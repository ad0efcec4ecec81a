"""Computed values that a worker keeps for the next request, up to a number of bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class KeptValues(Generic[Key, Value]):
    """Values by keys that name the state they were computed from; those put first go first.

    Args:
        bytes_max: Bytes of all values.
        size_of: Returns the bytes of one.
    """

    def __init__(self, bytes_max: int, size_of: Callable[[Value], int]) -> None:
        self._bytes_max = bytes_max
        self._size_of = size_of
        self._lock = threading.Lock()
        self._kept: dict[Key, Value] = {}
        self._bytes = 0

    def find(self, key: Key) -> Value | None:
        """Return the value of a key, None if it is not kept."""
        with self._lock:
            return self._kept.get(key)

    def put(self, key: Key, value: Value) -> None:
        """Keep a value, unless it is too large alone."""
        with self._lock:
            self._drop(key)
            self._kept[key] = value
            self._bytes += self._size_of(value)
            while self._bytes > self._bytes_max:
                self._drop(next(iter(self._kept)))

    def _drop(self, key: Key) -> None:
        value = self._kept.pop(key, None)
        self._bytes -= 0 if value is None else self._size_of(value)
