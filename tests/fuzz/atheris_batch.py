"""Fuzzes the server's batch decoder with atheris: `python tests/fuzz/atheris_batch.py [CORPUS]
-max_total_time=600`.

As atheris_reader.py, which tells how to install it and what the arguments are.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

TESTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))

with atheris.instrument_imports(
    include=["tbservice.ingest.decode", "tbservice.ingest.decode_points", "tbwire.tensors"]
):
    from support.hostile_batches import check, write_batch
    from support.wire_format import Choices


def try_one(data: bytes) -> None:
    """Decode an input without its first byte: as choices if that is even, otherwise as a batch."""
    if data:
        check(data[1:] if data[0] % 2 else write_batch(Choices(data[1:])))


def main() -> None:
    """Runs until the options say that it is enough, or the decoder is wrong."""
    with tempfile.TemporaryDirectory(prefix="tbhub-fuzz-") as seeds:
        Path(seeds, "ordinary").write_bytes(b"\x01" + write_batch(Choices(b"")))
        Path(seeds, "choices").write_bytes(b"\x00" + bytes(range(100)))
        is_retry = len(sys.argv) > 1 and Path(sys.argv[1]).is_file()
        atheris.Setup([*sys.argv, *([] if is_retry else [seeds])], try_one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
