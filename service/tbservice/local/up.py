"""`tbservice up`: PostgreSQL, SeaweedFS and the service in one process group on one machine."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from tbservice.errors import StartupError
from tbservice.local import terminal
from tbservice.local.embedded.accounts import can_use_namespace, is_reachable
from tbservice.local.embedded.instance import Instance
from tbservice.local.embedded.postgres import find_programs
from tbservice.server import bind
from tbwire.config_file import config_path

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line."""

    host: str
    port: int
    grpc_port: int | None
    data_dir: Path | None
    demo: bool


def up(options: Options) -> None:
    """Start everything and serve until a signal.

    Stops what it started in any case. Raises StartupError with one line.
    """
    for number in STOP_SIGNALS:
        signal.signal(number, _exit_on_signal)

    with bind.bind_socket(options.host, options.port) as bound:
        try:
            instance = Instance(options.data_dir or default_data_dir())
            try:
                _run(instance, bound, options)
            finally:
                # A second Ctrl-C must not leave a server running.
                for number in STOP_SIGNALS:
                    signal.signal(number, signal.SIG_IGN)
                instance.stop()
        except OSError as error:
            if error.filename is None:
                raise
            raise StartupError(f"{error.filename}: {error.strerror}") from error


def default_data_dir() -> Path:
    """Return the default data directory, in the user's data home (XDG Base Directory).

    Root on a system without user namespaces runs PostgreSQL as another account, which cannot enter
    root's home: then it is /var/lib/tbhub.
    """
    home = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    if (
        os.geteuid() == 0
        and not is_reachable(Path.home())
        and not can_use_namespace(find_programs() / "postgres")
    ):
        return Path("/var/lib/tbhub")
    return home / "tbhub"


def first_steps(url: str, token_file: Path, *, is_configured: bool, is_new: bool) -> list[str]:
    """Return lines that say where the token is, and commands to type next in another terminal.

    Args:
        url: The service's URL for programs on this machine.
        token_file: The file that has the owner's token, and nothing else.
        is_configured: Whether `tbupload` finds URL and token in its configuration.
        is_new: Whether there is nothing to look at, for which there is a demo.
    """
    program = _shown_program("tbupload")
    command = f"{program} --logdir runs/"
    if is_configured:
        token = f"server and token are in {config_path(os.environ)}, where tbupload finds them"
        print_token = f"{program} token print"
    else:
        token = f"the owner token is in {token_file}"
        secret = shlex.quote(str(token_file))
        print_token = f"cat {secret}"
        command = f'TBHUB_SERVER={url} TBHUB_TOKEN="$({print_token})" {command}'
    read = f'curl -H "Authorization: Bearer $({print_token})" {url}/api/v1/experiments'
    steps = [token, f"upload, in another terminal: {command}", f"list what is there: {read}"]
    if is_new:
        steps.append("an example to look at: stop this, and start it again with --demo")
    return steps


def _another_link(data_dir: Path, email: str) -> str:
    """Return the command that prints a sign-in link of the owner, from another terminal."""
    program, directory = _shown_program("tbservice"), shlex.quote(str(data_dir))
    return f"{program} user invite --data-dir {directory} {email}"


def _shown_program(name: str) -> str:
    """Return a program of this environment as one types it here; its name if it is elsewhere."""
    program = Path(sys.executable).with_name(name)
    if not program.exists():
        return name
    here = Path.cwd()
    return shlex.quote(str(program.relative_to(here) if program.is_relative_to(here) else program))


def _run(instance: Instance, bound: socket.socket, options: Options) -> None:
    is_new = instance.directory.is_new
    if is_new:
        _print_progress(f"first start: creating {instance.directory.path}")
    _print_progress("starting PostgreSQL and SeaweedFS")
    instance.start()

    # Imported while the servers start, because these imports are slow.
    from tbservice.auth.link_urls import sign_in_url  # noqa: PLC0415
    from tbservice.local import service  # noqa: PLC0415
    from tbservice.local.demo.upload import DemoUpload  # noqa: PLC0415

    instance.wait_ready()
    url = bind.local_url(options.host, bound.getsockname()[1])
    owner = service.prepare(instance, url, _print_progress)
    link = service.create_sign_in_link(instance)
    has_terminal = terminal.is_interactive()
    demo = DemoUpload(instance.directory.path / "demo", url, owner.token, _print_result)

    def when_ready(public_url: str, grpc_port: int | None) -> None:
        _print_result(f"tbhub is ready at {public_url}")
        _print_result(sign_in_line(public_url, link))
        key = "press Enter here, or " if has_terminal else ""
        command = _another_link(instance.directory.path, service.LOCAL_EMAIL)
        _print_result(f"another sign-in link: {key}run {command}")
        for line in first_steps(
            url, owner.file, is_configured=owner.is_configured, is_new=is_new and not options.demo
        ):
            _print_result(line)
        if grpc_port is not None:
            _print_result(f"gRPC (Katib) is ready at {options.host} port {grpc_port}")
        if options.demo:
            demo.start()
        if has_terminal:
            terminal.on_enter(lambda: print_link(public_url))

    def sign_in_line(public_url: str, link: str | None) -> str:
        if link is None:
            return (
                "the owner is disabled or suspended: `tbservice user enable` or `tbservice release "
                "person` lets them sign in again"
            )
        return f"sign in within 15 minutes, once: {sign_in_url(public_url, link)}"

    def print_link(public_url: str) -> None:
        _print_result(sign_in_line(public_url, service.create_sign_in_link(instance)))

    try:
        service.serve(instance, bound, options.host, options.grpc_port, when_ready)
    finally:
        demo.stop()


def _print_result(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the command's answer


def _print_progress(line: str) -> None:
    print(f"tbservice: {line}", file=sys.stderr, flush=True)  # noqa: T201 - progress


def _exit_on_signal(_number: int, _frame: FrameType | None) -> None:
    sys.exit(0)
