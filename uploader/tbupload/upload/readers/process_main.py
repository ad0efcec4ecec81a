"""Program of a reader process: messages come in pickled on stdin, and go out on stdout."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from typing import Any, BinaryIO

from tbupload.events.malloc_tuning import retain_freed_memory
from tbupload.upload.readers.messages import FromReader
from tbupload.upload.readers.read_loop import ReadLoop


def main() -> None:
    """Read what the upload asks for until it closes stdin, as it also does when it is killed."""
    # A scheduler may send it to every process of a job; the upload alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    retain_freed_memory()
    messages, output = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing else may be written between the messages

    def send(message: FromReader) -> None:
        pickle.dump(message, output, pickle.HIGHEST_PROTOCOL)
        output.flush()

    options, filters_digest = pickle.load(messages)  # noqa: S301 - from the process that started this one
    loop = ReadLoop(options, filters_digest, send)
    threading.Thread(target=_receive, args=(messages, loop), daemon=True).start()
    try:
        loop.run()
    except BrokenPipeError:
        os._exit(0)  # the upload has ended: not even a flush of stdout would succeed


def _receive(messages: BinaryIO, loop: ReadLoop) -> None:
    """Put all messages into the inbox; at their end, end the process, also within a long read."""
    try:
        while True:
            message: Any = pickle.load(messages)  # noqa: S301 - the same
            loop.inbox.put(message)
    except (EOFError, OSError, pickle.UnpicklingError):
        os._exit(0)


if __name__ == "__main__":
    main()
