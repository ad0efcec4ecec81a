"""Modules that are loaded when something of theirs is first used.

Each process of xdist imports every test module to collect its tests, and runs a quarter of them:
what a few tests need and takes a second to load is imported so.
"""

from __future__ import annotations

import importlib
from typing import Any


class LazyModule:
    """A module under a name of a test module; pytest looks at all of these names."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):  # what pytest asks of every name
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self._name), attribute)
