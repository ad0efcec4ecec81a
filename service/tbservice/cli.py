"""The command `tbservice`: parse, run, and turn each error into one line and an exit code.

Imports only the standard library, so that a missing extra is reported as a sentence. Exit codes: 0
success or stopped by a signal, 1 failure, 2 wrong usage; `cli_maintenance` has others.
"""
# ruff: noqa: PLC0415, T201 - each command imports what it needs, and prints its answer

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tbservice.cli_abuse import add_reports, add_suspensions
from tbservice.cli_administration import (
    add_migrate,
    add_token,
    add_user,
    add_workspace,
)
from tbservice.cli_maintenance import add_audit, add_backup, add_check, add_sweep
from tbservice.cli_overviews import add_health
from tbservice.cli_receipts import add_receipts
from tbwire import completion

INSTALL_HINT = (
    "the server's packages are not installed: run pip install '.[service]' in a checkout of tbhub"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    # By default OpenBLAS starts a thread per core for matrix products, which are never used here.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # gRPC's core would write its own lines to stderr, with what clients sent and without escapes.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    parser = _parser()
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["completion"] and given[2:3] == ["--"]:  # while one types: without imports
        return _print_offers(parser, given[1], given[3:])
    options = parser.parse_args(given)
    # Imports make a million objects that stay: looking for cycles in them is a fifth of the start.
    gc.disable()
    try:
        code = _run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # nobody reads on, as with `| head`; flushing at exit would fail again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in {"tbservice", "tbwire"}:
            raise
        return _fail(f"{INSTALL_HINT} ({error})")
    finally:
        gc.enable()
    return code


def _run(options: argparse.Namespace) -> int:
    from tbservice.server.logs import configure

    configure()
    return run_command(options)


def run_command(options: argparse.Namespace) -> int:
    """Run the command of parsed options; print its error as a line, and return its exit code."""
    from pydantic import ValidationError

    from tbservice.errors import CommandFailed, ServiceError, StartupError

    failure_code: int = getattr(options, "failure_code", 1)
    try:
        code = options.command(options)
    except CommandFailed as error:
        return _fail(str(error))
    except (StartupError, ServiceError) as error:
        return _fail(f"{error}{_explain_cause(error)}", failure_code)
    except ValidationError as error:
        if error.title != "Settings":
            raise
        return _fail(_explain_settings(error), failure_code)
    return code or 0


def _explain_cause(error: Exception) -> str:
    """Return what PostgreSQL or S3 said, for its operator: clients of the service do not see it."""
    from tbservice.errors import Unavailable

    cause = getattr(error.__cause__, "orig", error.__cause__)
    lines = str(cause).splitlines() if isinstance(error, Unavailable) else []
    return f" ({lines[0]})" if cause is not None and lines else ""


def _up(options: argparse.Namespace) -> None:
    from tbservice.audit.acting import begin_command
    from tbservice.local.up import Options, up

    begin_command("tbservice up")
    up(Options(options.host, options.port, options.grpc_port, options.data_dir, options.demo))


def _serve(options: argparse.Namespace) -> None:
    from tbservice.server.workers import serve

    serve(options.grpc_port)


def _openapi(_options: argparse.Namespace) -> None:
    from tbservice.server.workers import openapi_json

    print(openapi_json())


def _print_completion(options: argparse.Namespace) -> None:
    print(completion.write_script("tbservice", options.shell), end="")


def _print_offers(parser: argparse.ArgumentParser, shell: str, words: Sequence[str]) -> int:
    for line in completion.format_offers(shell, completion.complete(parser, words)):
        print(line)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tbservice", description="The tbhub server.")
    parser.add_argument("--version", action="version", version=f"tbservice {version('tbhub')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_up(
        commands.add_parser(
            "up", help="start everything on this machine: PostgreSQL, SeaweedFS and the service"
        )
    )
    text = "run the service with external PostgreSQL and S3 (TBHUB_* settings)"
    serve = commands.add_parser("serve", help=text, description=text)
    _add_grpc_port(serve)
    serve.set_defaults(command=_serve)
    add_migrate(commands)
    text = "print the OpenAPI document of the HTTP API"
    openapi = commands.add_parser("openapi", help=text, description=text)
    openapi.set_defaults(command=_openapi)
    _add_completion(commands)
    add_health(commands)
    add_check(commands)
    add_backup(commands)
    add_sweep(commands)
    add_audit(commands)
    add_receipts(commands)
    add_workspace(commands)
    add_token(commands)
    add_user(commands)
    add_suspensions(commands)
    add_reports(commands)
    return parser


def _add_completion(commands: Any) -> None:
    text = "print a script that completes these commands in bash, zsh or fish"
    parser = commands.add_parser(
        "completion",
        help=text,
        description=text,
        epilog=completion.EPILOG.replace("PROGRAM", "tbservice"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=completion.SHELLS, help="the shell")
    parser.set_defaults(command=_print_completion)


def _add_up(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: %(default)s)"
    )
    parser.add_argument(
        "--port",
        type=_port,
        default=6060,
        help="port to listen on, 0 for any (default: %(default)s)",
    )
    _add_grpc_port(parser)
    parser.add_argument(
        "--data-dir", type=Path, help="directory for data (default: ~/.local/share/tbhub)"
    )
    parser.add_argument(
        "--demo",
        action="store_true",
        help="upload a demo experiment with every kind of data",
    )
    parser.set_defaults(command=_up)


def _add_grpc_port(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--grpc-port",
        type=_port,
        help="port for Katib's gRPC API, 0 for any (default: TBHUB_GRPC_PORT, or none)",
    )


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:  # noqa: PLR2004 - the highest port there is
        raise argparse.ArgumentTypeError(f"{text} is not a port: use 0 to 65535")
    return int(text)


def _explain_settings(error: object) -> str:
    from pydantic import ValidationError

    assert isinstance(error, ValidationError)  # noqa: S101 - typed as object for want of the import
    problems = [
        f"TBHUB_{'_'.join(map(str, item['loc'])).upper()}: {item['msg']}" for item in error.errors()
    ]
    return f"invalid settings: {'; '.join(problems)}"


def _fail(line: str, code: int = 1) -> int:
    print(f"tbservice: {' '.join(line.split())}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
