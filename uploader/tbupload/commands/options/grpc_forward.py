"""Options of `tbupload grpc-forward`."""

from __future__ import annotations

import argparse
from typing import Final

from tbupload.commands.options.shared import add_retry_timeout

RETRY_TIMEOUT_SECONDS: Final = 60.0

EPILOG: Final = """\
examples:
  tbupload grpc-forward --server https://tbhub.example.org
  tbupload grpc-forward --server https://tbhub.example.org:6061 --listen 0.0.0.0:6789 \\
      --listen 0.0.0.0:6788

Katib's components speak gRPC without TLS and cannot send a token. This command listens where they
expect a DBManager, a Suggestion or an EarlyStopping service, and forwards their calls to the gRPC
server of tbhub at --server, with your token and over TLS. It forwards only the methods of these
services, health checks and reflection.

Everybody who reaches the address in --listen acts with your token: let only Katib reach it.

A call is repeated while the server is away or too busy, because Katib's collectors repeat nothing.
docs/katib.md has the settings of Katib. Needs grpcio: pip install grpcio.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of a forwarder."""
    command.add_argument(
        "--listen",
        metavar="HOST:PORT",
        action="append",
        help="address to listen on, may be repeated (default: 127.0.0.1:6789)",
    )
    command.add_argument(
        "--experiment",
        metavar="NAME",
        help="the Katib experiment of trials that the server cannot tell by their names",
    )
    add_retry_timeout(command, RETRY_TIMEOUT_SECONDS, "%(default)s")
