"""Fuzzes the reader of event files with atheris: `python tests/fuzz/atheris_reader.py [CORPUS]
-max_total_time=600`.

atheris is not among the tests' packages (it is large, and hypothesis runs the same checks with
every test run): `pip install atheris`. CORPUS is a directory that keeps what reached new code;
options are libFuzzer's (`-help=1` lists them). It begins with the records of tests/data. What fails
is written to a file beside it, whose name tried again is the argument: `python
tests/fuzz/atheris_reader.py crash-...`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

TESTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))

with atheris.instrument_imports(include=["tbupload.events", "tbwire.tensors"]):
    from support.damaged_files import Bench, read_plainly
    from support.event_files import encode_records, scalar_event
    from support.hostile_events import event_file
    from support.wire_format import Choices

AS_CHOICES, AS_PAYLOAD, AS_FILE = range(3)
"""What the first byte says the others are."""

BULK_RECORDS = 9
"""So many records of one length are decoded in bulk."""


def content_of(data: bytes) -> bytes:
    """Return the event file that an input of the fuzzer encodes."""
    kind, rest = data[0] % 3, data[1:]
    if kind == AS_CHOICES:
        return event_file(Choices(rest))
    if kind == AS_PAYLOAD:
        return encode_records([scalar_event("t", 0, 1.0), *[rest] * BULK_RECORDS])
    return rest


def seeds() -> list[bytes]:
    """Inputs to begin with: each record by real writers, once."""
    files = [path.read_bytes() for path in sorted(TESTS.glob("data/**/*tfevents*"))]
    payloads = {payload for content in files for payload in read_plainly(content).payloads}
    return [bytes([AS_PAYLOAD]) + payload for payload in sorted(payloads) if len(payload) < 500]


def main() -> None:
    """Runs until the options say that it is enough, or the reader is wrong."""
    with tempfile.TemporaryDirectory(prefix="tbhub-fuzz-") as directory:
        bench, first = Bench(Path(directory)), Path(directory, "seeds")
        first.mkdir()
        for number, seed in enumerate(seeds()):
            (first / str(number)).write_bytes(seed)

        def try_one(data: bytes) -> None:
            if data:
                bench.check(content_of(data))
                bench.check(content_of(data), final=False)

        is_retry = len(sys.argv) > 1 and Path(sys.argv[1]).is_file()
        atheris.Setup([*sys.argv, *([] if is_retry else [str(first)])], try_one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
