"""Jobs of a handler process that do what hostile data might make a handler do."""

from __future__ import annotations

import os
import pickle
import signal
import time
from pathlib import Path

from tbservice.types.sampling import Selection
from tbwire.points import DataClass


def echo(_link, value):
    """Return the value."""
    return value


def ask(link, name):
    """Return what the worker answers to a call."""
    return link.call(name, 20)


def allocate(_link, bytes_count):
    """Allocate `size` bytes; return the size."""
    return len(bytearray(bytes_count))


def loop(_link):
    """Never end, and ignore every signal that can be ignored."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(0.01)


def die(_link):
    """End the process without an answer."""
    os._exit(3)


def describe(_link):
    """Return what a handler process inherits: the names in its environment, and its descriptors."""
    files = [Path(f"/proc/self/fd/{number}") for number in range(3, 100)]
    return sorted(os.environ), [
        str(file.readlink()) for file in files if file.exists() or file.is_symlink()
    ]


def spy(_link, process_id):
    """Return what another process of the account refuses: its memory, its open files."""
    refused = []
    for look in (lambda path: (path / "mem").open("rb"), lambda path: (path / "fd/0").readlink()):
        try:
            look(Path(f"/proc/{process_id}"))
        except PermissionError as error:
            refused.append(Path(error.filename).name)
    return refused


def forge(link, path):
    """Send the worker a message that runs a command when it is unpickled as such."""
    link._connection.send_bytes(pickle.dumps(_Call(os.system, f"touch {path}")))


def reach(link, name):
    """Send the worker a message that takes an attribute of one of its types."""
    link._connection.send_bytes(pickle.dumps(_Call(getattr, Selection, name)))


def ask_for_member(link):
    """Return what the worker answers to a call with a member, pickled as by Python 3.11.2."""
    return link.call("ask", _Call(getattr, DataClass, "TENSOR"))


class _Call:
    """Unpickled, the result of a call."""

    def __init__(self, function, *arguments):
        self._call = function, arguments

    def __reduce__(self):
        return self._call


JOBS = {
    job.__name__: job
    for job in (echo, ask, allocate, loop, die, describe, spy, forge, reach, ask_for_member)
}
