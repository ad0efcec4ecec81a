"""The demo's embeddings: the last hidden layer's values of each validation point.

Files and their names are those of PyTorch's writer (`torch/utils/tensorboard/_embedding.py`), read
by `tensorboard/plugins/projector/projector_plugin.py`.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image, ImageDraw

from tbservice.local.demo.spirals import Array, activate, classify, make_spirals

_POINTS: Final = 300
_NEURONS: Final = 16
_SPRITE_PIXELS: Final = 24
_BLUE, _RED, _WHITE = (33, 102, 172), (178, 24, 43), (247, 247, 247)
_CONFIG: Final = f"""\
embeddings {{
  tensor_name: "hidden layer"
  tensor_path: "hidden_layer/tensors.tsv"
  metadata_path: "hidden_layer/metadata.tsv"
  sprite {{
    image_path: "hidden_layer/sprite.png"
    single_image_dim: {_SPRITE_PIXELS}
    single_image_dim: {_SPRITE_PIXELS}
  }}
}}
"""


def write_embeddings(directory: Path, progress: float) -> None:
    """Write tensors, labels, a sprite image and the projector's configuration of one run.

    `progress` is how far the classifier has learned, from 0 to 1.
    """
    points, labels = make_spirals(_POINTS, np.random.default_rng(2028))
    probabilities = classify(points, progress)
    files = directory / "hidden_layer"
    files.mkdir(parents=True, exist_ok=True)
    values = activate(points, progress, _NEURONS)
    np.savetxt(files / "tensors.tsv", values, delimiter="\t", fmt="%.4f")
    (files / "metadata.tsv").write_text(_describe(points, labels, probabilities))
    _draw(points, labels).save(files / "sprite.png", optimize=True)
    (directory / "projector_config.pbtxt").write_text(_CONFIG)


def _describe(points: Array, labels: Array, probabilities: Array) -> str:
    """Return the projector's table: one row per point."""
    rows = ["point\tspiral\tprobability of spiral 1\tclassified"]
    for (x, y), label, probability in zip(points, labels, probabilities, strict=True):
        verdict = "right" if round(probability) == label else "wrong"
        rows.append(f"({x:.2f}, {y:.2f})\tspiral {label:.0f}\t{probability:.3f}\t{verdict}")
    return "\n".join(rows) + "\n"


def _draw(points: Array, labels: Array) -> Image.Image:
    """Return the sprite: for each point a picture of where it lies, in its spiral's color."""
    columns = math.ceil(math.sqrt(len(points)))
    sheet = Image.new("RGB", (columns * _SPRITE_PIXELS,) * 2, _WHITE)
    draw = ImageDraw.Draw(sheet)
    for index, ((x, y), label) in enumerate(zip(points, labels, strict=True)):
        row, column = divmod(index, columns)
        left, top = column * _SPRITE_PIXELS, row * _SPRITE_PIXELS
        middle, reach = _SPRITE_PIXELS / 2, _SPRITE_PIXELS / 2.6
        center = (left + middle + reach * x, top + middle - reach * y)
        color = _RED if label else _BLUE
        frame = (left + 1, top + 1, left + _SPRITE_PIXELS - 2, top + _SPRITE_PIXELS - 2)
        draw.rectangle(frame, outline=color)
        draw.circle(center, 3, fill=color)
    return sheet
