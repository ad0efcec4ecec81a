"""Job of handler processes: draw a card as PNG."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import resvg_py

_FONT: Final = str(Path(__file__).parents[1] / "fonts" / "DejaVuSans-subset.ttf")
"""The only font, so that each server draws the same bytes: Latin, Greek and Cyrillic letters."""


def draw_png(_link: object, svg: str) -> bytes:
    """Return an SVG as PNG, on white."""
    image = resvg_py.svg_to_bytes(
        svg_string=svg,
        background="#fff",
        skip_system_fonts=True,
        font_files=[_FONT],
        font_family="DejaVu Sans",
        sans_serif_family="DejaVu Sans",
    )
    return bytes(image)


JOBS: Final[dict[str, Callable[..., Any]]] = {"draw_png": draw_png}
