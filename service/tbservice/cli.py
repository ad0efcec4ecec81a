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

from tbservice.cli_maintenance import add_backup, add_check, add_sweep

INSTALL_HINT = (
    "the server's packages are not installed: run pip install '.[service]' in a checkout of tbhub"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    # By default OpenBLAS starts a thread per core for matrix products, which are never used here.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # gRPC's core would write its own lines to stderr, with what clients sent and without escapes.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    options = _parser().parse_args(arguments)
    # Imports make a million objects that stay: looking for cycles in them is a fifth of the start.
    gc.disable()
    try:
        return _run(options)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in {"tbservice", "tbwire"}:
            raise
        return _fail(f"{INSTALL_HINT} ({error})")
    finally:
        gc.enable()


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
        return _fail(str(error), failure_code)
    except ValidationError as error:
        if error.title != "Settings":
            raise
        return _fail(_explain_settings(error), failure_code)
    return code or 0


def _up(options: argparse.Namespace) -> None:
    from tbservice.local.up import Options, up

    up(Options(options.host, options.port, options.grpc_port, options.data_dir, options.demo))


def _serve(options: argparse.Namespace) -> None:
    from tbservice.server.workers import serve

    serve(options.grpc_port)


def _migrate(options: argparse.Namespace) -> None:
    from tbservice.errors import StartupError
    from tbservice.server.administration import check_migrations, upgrade_database

    if not options.check:
        for name in upgrade_database():
            print(name)
        return
    lines, is_current = check_migrations()
    print("\n".join(lines))
    if not is_current:
        raise StartupError(f"steps to do: {len(lines)}; run 'tbservice migrate'")


def _openapi(_options: argparse.Namespace) -> None:
    from tbservice.server.workers import openapi_json

    print(openapi_json())


def _create_workspace(options: argparse.Namespace) -> None:
    from tbservice.server.administration import add_workspace

    print(add_workspace(options.name))


def _list_workspaces(_options: argparse.Namespace) -> None:
    from tbservice.server.administration import read_workspaces

    for workspace_id, name in read_workspaces():
        print(f"{workspace_id}\t{name}")


def _create_token(options: argparse.Namespace) -> None:
    from tbservice.server.administration import issue_owner_token

    print(issue_owner_token(options.workspace, options.label))


def _invite_user(options: argparse.Namespace) -> None:
    from tbservice.server.administration import invite_user
    from tbservice.types import Role

    print(invite_user(options.email, options.name, options.workspace, Role(options.role)))


def _list_users(_options: argparse.Namespace) -> None:
    from tbservice.server.administration import read_users

    for user in read_users():
        places = [f"{each.workspace_id}:{each.role.value}" for each in user.memberships]
        state = "disabled" if user.is_disabled else "active"
        person = user.person
        print("\t".join((person.user_id, person.email, person.name, state, " ".join(places))))


def _disable_user(options: argparse.Namespace) -> None:
    from tbservice.server.administration import disable_user

    disable_user(options.email)


def _enable_user(options: argparse.Namespace) -> None:
    from tbservice.server.administration import enable_user

    enable_user(options.email)


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
    text = "upgrade the schema of the database at TBHUB_DATABASE_URL"
    migrate = commands.add_parser("migrate", help=text, description=text)
    migrate.add_argument(
        "--check",
        action="store_true",
        help="print what would be run and locked, and change nothing; exit code 1 if anything is",
    )
    migrate.set_defaults(command=_migrate)
    text = "print the OpenAPI document of the HTTP API"
    openapi = commands.add_parser("openapi", help=text, description=text)
    openapi.set_defaults(command=_openapi)
    add_check(commands)
    add_backup(commands)
    add_sweep(commands)
    _add_workspace(
        commands.add_parser("workspace", help="create and list workspaces").add_subparsers(
            required=True
        )
    )
    _add_token(
        commands.add_parser("token", help="create a workspace token").add_subparsers(required=True)
    )
    _add_user(
        commands.add_parser(
            "user", help="invite people by sign-in links, list, disable and enable them"
        ).add_subparsers(required=True)
    )
    return parser


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


def _add_workspace(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    create = commands.add_parser("create", help="create a workspace and print its id")
    create.add_argument("name")
    create.set_defaults(command=_create_workspace)
    commands.add_parser("list", help="print the id and name of every workspace").set_defaults(
        command=_list_workspaces
    )


def _add_token(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    create = commands.add_parser(
        "create", help="create an admin token of a workspace and print it, this once"
    )
    create.add_argument(
        "--workspace", type=int, required=True, metavar="ID", help="the workspace's id"
    )
    create.add_argument("--label", default="", help="what the token is for")
    create.set_defaults(command=_create_token)


def _add_user(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = (
        "print a link that signs the person with this e-mail address in, once, within 24 hours; "
        "the person is created if there is none"
    )
    invite = commands.add_parser("invite", help=text, description=text)
    invite.add_argument("email", metavar="EMAIL")
    invite.add_argument("--name", default="", help="what others see of a new person")
    invite.add_argument(
        "--workspace",
        type=_workspace_id,
        metavar="ID",
        help="make the person a member of this workspace",
    )
    invite.add_argument(
        "--role",
        choices=("owner", "editor", "viewer"),
        default="editor",
        help="the role in it (default: %(default)s); a member keeps a higher one",
    )
    invite.set_defaults(command=_invite_user)

    text = "print id, e-mail address, name, state and workspaces of everyone, separated by tabs"
    commands.add_parser("list", help=text, description=text).set_defaults(command=_list_users)
    for name, command, text in (
        ("disable", _disable_user, "disable a person: end all sessions and revoke all tokens"),
        ("enable", _enable_user, "enable a person again, who must then sign in"),
    ):
        parser = commands.add_parser(name, help=text, description=text)
        parser.add_argument("email", metavar="EMAIL")
        parser.set_defaults(command=command)


def _workspace_id(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 2**63:
        raise argparse.ArgumentTypeError(f"{text} is not the id of a workspace")
    return int(text)


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
