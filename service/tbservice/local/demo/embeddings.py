"""The demo's embeddings: of each validation point, how the classifier saw it while it learned.

Files and their names are those of PyTorch's writer (`torch/utils/tensorboard/_embedding.py`), read
by `tensorboard/plugins/projector/projector_plugin.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from tbservice.local.demo.spirals import classify, make_spirals

_POINTS: Final = 300
_DIMENSIONS: Final = 16
_CONFIG: Final = """\
embeddings {
  tensor_name: "probabilities"
  tensor_path: "probabilities/tensors.tsv"
  metadata_path: "probabilities/metadata.tsv"
}
"""


def write_embeddings(directory: Path, progress: float) -> None:
    """Write tensors, labels and the projector's configuration of one run.

    `progress` is how far the classifier has learned, from 0 to 1.
    """
    points, labels = make_spirals(_POINTS, np.random.default_rng(2028))
    shares = np.linspace(0, progress, _DIMENSIONS)
    values = np.column_stack([classify(points, share) for share in shares])
    rows = ["point\tspiral\tprobability of spiral 1"]
    for (x, y), label, value in zip(points, labels, values, strict=True):
        rows.append(f"({x:.2f}, {y:.2f})\tspiral {label:.0f}\t{value[-1]:.3f}")

    files = directory / "probabilities"
    files.mkdir(parents=True, exist_ok=True)
    np.savetxt(files / "tensors.tsv", values, delimiter="\t", fmt="%.4f")
    (files / "metadata.tsv").write_text("\n".join([*rows, ""]))
    (directory / "projector_config.pbtxt").write_text(_CONFIG)
