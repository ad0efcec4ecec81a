"""Ask `nvidia-smi` for GPUs: their names, and how busy they are.

It may be missing, and it may hang, as with a driver in trouble: then even a killed one may not end,
so nothing waits for that.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
from collections.abc import Sequence
from typing import Final

SECONDS_MAX: Final = 5.0
"""How long an answer may take; it takes a second on machines without persistence mode."""

OUTPUT_BYTES_MAX: Final = 100_000
GPUS_ITEMS_MAX: Final = 64
"""GPUs of a machine, at most."""

NAMES: Final = ("index", "name", "driver_version")
METRICS: Final = {
    "utilization.gpu": ("utilization_percent", 1.0),
    "memory.used": ("memory_used_bytes", float(1 << 20)),
    "temperature.gpu": ("temperature_celsius", 1.0),
    "power.draw": ("power_watts", 1.0),
}
"""Fields to ask for, with our names, and what to multiply by: memory is in MiB."""


class NvidiaSmi:
    """The program, until it fails: a hanging one is not started again."""

    def __init__(self, program: str | None = None, seconds_max: float = SECONDS_MAX) -> None:
        self._program = shutil.which("nvidia-smi") if program is None else program
        self._seconds_max = seconds_max

    @property
    def is_usable(self) -> bool:
        """Return whether there is such a program, and it has not failed yet."""
        return self._program is not None

    def query(self, fields: Sequence[str]) -> list[list[str]]:
        """Return these fields of each GPU; nothing if they cannot be had in time."""
        if self._program is None:
            return []
        output = self._run(
            [self._program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
        )
        if output is None:
            self._program = None
            return []
        return parse_rows(output, len(fields))

    def describe(self) -> dict[str, str]:
        """Return names and driver: {"gpus": "2 x NVIDIA A100", "gpu_driver": "535.104.05"}."""
        rows = self.query(NAMES)
        names = [name for _, name, _ in rows]
        counts = {name: names.count(name) for name in names}
        drivers = sorted({driver for _, _, driver in rows})
        described = {
            "gpus": ", ".join(f"{count} x {name}" for name, count in counts.items()),
            "gpu_driver": ", ".join(drivers),
        }
        return {name: value for name, value in described.items() if value}

    def measure(self) -> dict[str, float]:
        """Return the metrics of all GPUs: {"gpu_0_utilization_percent": 87.0, …}."""
        measured = {}
        for index, *values in self.query(("index", *METRICS)):
            for (name, factor), value in zip(METRICS.values(), values):
                with contextlib.suppress(ValueError):  # [N/A], [Not Supported], ERR!
                    measured[f"gpu_{int(index)}_{name}"] = float(value) * factor
        return measured

    def _run(self, command: list[str]) -> bytes | None:
        """Return what the command prints; None if it fails, or takes too long."""
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except (OSError, ValueError):
            return None
        output: list[bytes] = []

        def read() -> None:
            # Ends with the process, which may be never: in a thread that nobody waits for.
            with process, contextlib.suppress(OSError, ValueError):
                content = process.stdout.read(OUTPUT_BYTES_MAX) if process.stdout else b""
                if process.wait() == 0:
                    output.append(content)

        reader = threading.Thread(target=read, name="nvidia-smi", daemon=True)
        reader.start()
        reader.join(self._seconds_max)
        if reader.is_alive():
            process.kill()
        return output[0] if output else None


def parse_rows(output: bytes, count: int) -> list[list[str]]:
    """Return the rows of `--format=csv,noheader,nounits` that have this number of fields.

    Source: `nvidia-smi --help-query-gpu`. Fields are separated by a comma and a space; a value that
    is not known is in brackets. Rows of another form, such as warnings, are left out.
    """
    rows = [
        [field.strip() for field in line.split(",")]
        for line in output.decode("utf-8", "replace").splitlines()
    ]
    return [row for row in rows if len(row) == count and row[0].isdecimal()][:GPUS_ITEMS_MAX]
