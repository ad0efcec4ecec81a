"""A process that writes the event files of many training jobs, 50 scalars a second each: started by
`live`.

`python live_writer.py SECONDS DIRECTORY…` encodes everything first, prints when it begins (seconds
since the epoch), and then only appends: each second a step to each file, spread over the second.
Beside each directory it logs step and time of every flush.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from logdirs import FILE_NAME, encode_steps

from support.event_files import encode_record, version_event

TAGS = 50
RUN = "train"


def log_of(directory: Path) -> Path:
    """The log of a directory's flushes: a JSON list of step and time a line."""
    return directory.parent.parent.parent / "flushes"


def main() -> None:
    """Writes until the seconds are over."""
    seconds, directories = int(sys.argv[1]), [Path(argument) for argument in sys.argv[2:]]
    tags = [f"metrics/tag_{number:02d}" for number in range(TAGS)]
    began = time.time() + 1 + seconds * len(directories) / 5_000
    steps = np.arange(1, seconds + 1)
    contents = []
    for number in range(len(directories)):
        wall_times = np.repeat(
            (began + steps - 1 + number / len(directories))[:, None], TAGS, axis=1
        )
        values = np.random.default_rng(number).normal(size=(seconds, TAGS))
        contents.append(list(encode_steps(tags, steps, wall_times, values)))
    files = [(directory / FILE_NAME).open("wb", buffering=0) for directory in directories]
    logs = [log_of(directory).open("w", buffering=1) for directory in directories]
    for file in files:
        file.write(encode_record(version_event(began).SerializeToString()))
    print(began, flush=True)
    for index, step in enumerate(steps.tolist()):
        for number, (file, log, content) in enumerate(zip(files, logs, contents, strict=True)):
            time.sleep(max(0.0, began + index + number / len(files) - time.time()))
            file.write(content[index])
            print(json.dumps([step, time.time()]), file=log)


if __name__ == "__main__":
    main()
