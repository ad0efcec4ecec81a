"""The account that PostgreSQL runs as: it refuses to run as root."""

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
    """An account: its arguments for `launch.py`, and the ids that own its files, seen from here."""

    arguments: tuple[str, ...]
    uid: int
    gid: int
    is_different_user: bool
    """Whether it is another account than ours, which must be able to reach the files."""


def choose_account(probe: Path) -> Account:
    """Return the account for PostgreSQL: the current one, unless that is root.

    Root runs it in a user namespace, in which root appears as an ordinary user and still owns its
    files. Many containers forbid that; then PostgreSQL runs as another account. `probe` is a
    program with an option --version, to try a namespace with.
    """
    if os.geteuid() != 0:
        return Account((), os.geteuid(), os.getegid(), is_different_user=False)
    return (
        Account(_namespace_arguments(), 0, 0, is_different_user=False)
        if can_use_namespace(probe)
        else find_unprivileged_account()
    )


def can_use_namespace(probe: Path) -> bool:
    """Return whether root may run `probe --version` in a new user namespace."""
    command = launch_command([probe, "--version"], _namespace_arguments())
    return subprocess.run(command, capture_output=True, check=False).returncode != NO_NAMESPACE


def find_unprivileged_account() -> Account:
    """Return an unprivileged account of the system, which root can switch to."""
    entry = _find_named_account()
    return Account(
        ("--uid", str(entry.pw_uid), "--gid", str(entry.pw_gid)),
        entry.pw_uid,
        entry.pw_gid,
        is_different_user=True,
    )


def chown_tree(tree: Path, account: Account) -> None:
    """Make the account the owner of a directory tree.

    Does nothing if it owns the directory itself, which is changed last.
    """
    if tree.stat().st_uid == account.uid:
        return
    for directory, names, files in os.walk(tree, topdown=False):
        for name in (*names, *files):
            os.chown(Path(directory, name), account.uid, account.gid, follow_symlinks=False)
    os.chown(tree, account.uid, account.gid)  # last, so that an interrupted walk is repeated


def make_traversable(directory: Path) -> None:
    """Let other accounts traverse `directory`, but not list it.

    Raises StartupError if they cannot traverse one of its parents.
    """
    directory.chmod(stat.S_IMODE(directory.stat().st_mode) | stat.S_IXOTH)
    if not is_reachable(directory):
        raise StartupError(
            f"PostgreSQL does not run as root, and no other account can reach {directory}: "
            "choose --data-dir /var/lib/tbhub, or run as an ordinary user"
        )


def is_reachable(path: Path) -> bool:
    """Return whether every account may traverse or execute `path` and traverse its parents."""
    return all(each.stat().st_mode & stat.S_IXOTH for each in (path, *path.parents))


def _namespace_arguments() -> tuple[str, ...]:
    return ("--namespace-uid", str(_find_named_account().pw_uid))


def _find_named_account() -> pwd.struct_passwd:
    """Return an unprivileged account with a name, which PostgreSQL requires of its user id."""
    accounts = {entry.pw_name: entry for entry in pwd.getpwall() if entry.pw_uid != 0}
    for name in (*UNPRIVILEGED_NAMES, *accounts):
        if name in accounts:
            return accounts[name]
    raise StartupError(
        "PostgreSQL does not run as root, and this system has no other account: "
        "create one with useradd"
    )
