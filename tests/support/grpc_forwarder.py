"""`tbupload grpc-forward` as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager

from support.waiting import SECONDS_MAX
from tbservice.local.embedded.ports import LOOPBACK


@contextmanager
def forwarder(server, token, *arguments, **more):
    """Run the command until the block ends; yield its process and its port, read what it said."""
    environment = {name: value for name, value in os.environ.items() if name[:6] != "TBHUB_"}
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "tbupload", "grpc-forward"),
            *("--listen", f"{LOOPBACK}:0", "--server", server, *arguments),
        ],
        env=environment | {"TBHUB_TOKEN": token, "TBHUB_CONFIG": os.devnull} | more,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        process.port = int(line.split()[1].rpartition(":")[2])
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS_MAX) == 0
    finally:
        process.kill()
        process.wait()
        process.said = process.stderr.read()
        process.stdout.close()
        process.stderr.close()
