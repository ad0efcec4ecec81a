"""`tbupload grpc-forward`: adds a token and TLS to the gRPC calls of Katib's components."""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path

from tbupload.commands.connect import access_from_options, progress_from_options
from tbupload.console.output import print_line
from tbupload.errors import UsageError
from tbupload.forward.addresses import check_experiment, parse_listen, parse_target


def grpc_forward(options: argparse.Namespace) -> int:
    """Run `tbupload grpc-forward`: forward calls until SIGTERM or Ctrl-C, and return 0 then."""
    progress = progress_from_options(options)
    access = access_from_options(options, progress)
    if access.token is None:
        raise UsageError(
            f"no token for {access.server}: set TBHUB_TOKEN, or run "
            f"`tbupload login --server {access.server}`"
        )
    listen = tuple(map(parse_listen, options.listen or ["127.0.0.1:6789"]))
    target = parse_target(access.server)
    experiment = check_experiment(options.experiment)
    certificates = None if options.cacert is None else _read(options.cacert)

    # gRPC's core writes its own lines to stderr, with addresses and without escapes.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        from tbupload.forward.forwarder import Forwarder, ForwardOptions  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        if error.name != "grpc":
            raise
        raise UsageError("grpcio is not installed: run pip install grpcio") from error

    forwarder = Forwarder(
        ForwardOptions(
            listen, target, access.token, certificates, experiment, options.retry_timeout
        ),
        lambda line: progress.warn(f"tbupload: {line}"),
    )
    asyncio.run(
        forwarder.run(
            lambda addresses: print_line(f"forwarding {', '.join(addresses)} to {access.server}")
        )
    )
    return 0


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
