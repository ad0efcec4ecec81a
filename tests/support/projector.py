"""A run with embeddings for the projector, as PyTorch's writer lays it out, or as users write it by
hand.
"""

from __future__ import annotations

import json

import numpy as np
from PIL import Image

ROWS, COLUMNS = 60, 8
IN_CHECKPOINT = (
    'embeddings { tensor_name: "layer/kernel" metadata_path: "00000/words/metadata.tsv" }'
)


def write_projector_run(directory, seed=0, rows=ROWS, more=""):
    """Write a tensor as text with labels and a sprite, a binary one with bookmarks, and `more`
    config; return the two matrices.
    """
    rng = np.random.default_rng(seed)
    words, points = (
        rng.normal(size=(rows, COLUMNS)).astype("<f4"),
        rng.normal(size=(rows, 3)).astype("<f4"),
    )
    parts = directory / "00000" / "words"
    parts.mkdir(parents=True, exist_ok=True)
    np.savetxt(parts / "tensors.tsv", words, delimiter="\t", fmt="%.9g")
    labels = "".join(f"word {row}\t{row % 3}\n" for row in range(rows))
    (parts / "metadata.tsv").write_text(f"word\tkind\n{labels}")
    Image.new("RGB", (8 * 8, 8 * 8), (200, 0, 0)).save(parts / "sprite.png")
    (directory / "points.bytes").write_bytes(points.tobytes())
    (directory / "bookmarks.json").write_text(json.dumps([]))
    (directory / "projector_config.pbtxt").write_text(f"""
        embeddings {{
          tensor_name: "words" tensor_path: "00000/words/tensors.tsv" metadata_path: "00000/words/metadata.tsv"
          sprite {{ image_path: "00000/words/sprite.png" single_image_dim: 8 single_image_dim: 8 }}
        }}
        embeddings {{
          tensor_name: "points:0" tensor_path: "points.bytes" tensor_shape: {rows} tensor_shape: 3
          bookmarks_path: "bookmarks.json"
        }}
        {more}
    """)
    return words, points
