"""Whom PostgreSQL runs as: it refuses root, so root needs a way to look like somebody else to it."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tbservice.errors import StartupError
from tbservice.launch import NO_NAMESPACE
from tbservice.local.embedded.subprocesses import launch_command

UNPRIVILEGED_NAMES = ("postgres", "nobody", "daemon")


@dataclass(frozen=True, slots=True)
class Account:
    """Whom to run as: `arguments` for `launch.py`, and the user and group that own the files, as seen from here."""

    arguments: tuple[str, ...]
    uid: int
    gid: int
    is_different_user: bool
    """The files belong to another account than ours, which must be able to reach them."""


def choose_account(probe: Path) -> Account:
    """The account for PostgreSQL: ourselves, unless we are root.

    Root runs it in a user namespace, where root looks like an ordinary user and still owns its files; where the system
    allows none, as many containers do, as another account. `probe` is a harmless program with an option --version.
    """
    if os.geteuid() != 0:
        return Account((), os.geteuid(), os.getegid(), is_different_user=False)
    return (
        Account(_namespace_arguments(), 0, 0, is_different_user=False)
        if can_use_namespace(probe)
        else find_unprivileged_account()
    )


def can_use_namespace(probe: Path) -> bool:
    """Tells whether root may run `probe --version` in a user namespace of its own."""
    command = launch_command([probe, "--version"], _namespace_arguments())
    return subprocess.run(command, capture_output=True, check=False).returncode != NO_NAMESPACE


def find_unprivileged_account() -> Account:
    """An unprivileged account of the system, which root can become."""
    other = _find_named_account()
    return Account(
        ("--uid", str(other.pw_uid), "--gid", str(other.pw_gid)),
        other.pw_uid,
        other.pw_gid,
        is_different_user=True,
    )


def chown_tree(tree: Path, account: Account) -> None:
    """Makes the account the owner of a directory and all in it; does nothing when the directory is its already."""
    if tree.stat().st_uid == account.uid:
        return
    for directory, names, files in os.walk(tree, topdown=False):
        for name in (*names, *files):
            os.chown(Path(directory, name), account.uid, account.gid, follow_symlinks=False)
    os.chown(tree, account.uid, account.gid)  # last, so that an interrupted walk is done again


def make_traversable(directory: Path) -> None:
    """Lets other accounts pass through `directory` (not list it). Raises StartupError when one above it keeps them out."""
    directory.chmod(stat.S_IMODE(directory.stat().st_mode) | stat.S_IXOTH)
    if not is_reachable(directory):
        raise StartupError(
            f"PostgreSQL does not run as root, and no other account can reach {directory}: "
            "choose --data-dir /var/lib/tbhub, or run as an ordinary user"
        )


def is_reachable(path: Path) -> bool:
    """Tells whether every account may pass through all directories above `path`, and through it or execute it."""
    return all(part.stat().st_mode & stat.S_IXOTH for part in (path, *path.parents))


def _namespace_arguments() -> tuple[str, ...]:
    return ("--namespace-uid", str(_find_named_account().pw_uid))


def _find_named_account() -> pwd.struct_passwd:
    """PostgreSQL wants an account that the system knows by name."""
    known = {entry.pw_name: entry for entry in pwd.getpwall() if entry.pw_uid != 0}
    for name in (*UNPRIVILEGED_NAMES, *known):
        if name in known:
            return known[name]
    raise StartupError(
        "PostgreSQL does not run as root, and this system has no other account: make one with useradd"
    )
