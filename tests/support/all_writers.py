"""A log directory with the files of all real writers, and with what none of them wrote."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from support import event_files

DATA = Path(__file__).parent.parent / "data"
NAME = "events.out.tfevents.1.host"


def write_files_of_all_writers(logdir: Path) -> None:
    """Write all files of real writers, and what none of them wrote: names, an embedding, large
    blobs, mixed histograms.
    """
    for path in DATA.rglob("*.tfevents.*"):
        copied = logdir / path.relative_to(DATA)
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.write_bytes(path.read_bytes())
    rows = [[0, 1, 3], [1, 2, 5]]
    odd = [np.nan, np.inf, -np.inf, -0.0, 5e-324]
    event_files.write_records(
        logdir / "=odd, names" / "é%" / NAME,
        [
            event_files.version_event(12.5),
            *[
                event_files.plugin_event(
                    "scalars", "x/" + "y" * 300, s, event_files.tensor_proto(v)
                )
                for s, v in zip((-5, 0, 127, 128, 2**40), map(np.float64, odd), strict=True)
            ],
            *[
                event_files.histogram_event("legacy", step, rows, style="legacy")
                for step in range(3)
            ],
            event_files.image_event("large", 1, [event_files.PNG + bytes(1_500_000), b""]),
            event_files.hparams_event("_hparams_/session_start_info", b"content"),
        ],
    )
    (logdir / "embeddings").mkdir()
    (logdir / "embeddings" / "projector_config.pbtxt").write_text(
        'embeddings { tensor_name: "e" tensor_path: "e.tsv" }'
    )
    (logdir / "embeddings" / "e.tsv").write_text("1\t2\n3\t4\n")
    event_files.write_records(logdir / "embeddings" / NAME, [event_files.version_event()])
