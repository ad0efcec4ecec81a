"""Start another program with a given account, parent death signal and lock file.

Run as a script, by path, with the standard library only: all of this happens between fork and exec,
in a separate process, so that the parent may have threads.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import fcntl
import os
import sys
from pathlib import Path

CLONE_NEWUSER = 0x10000000
PR_SET_PDEATHSIG = 1
NO_NAMESPACE = 71
"""Exit code: the system does not allow user namespaces here."""


def main() -> None:
    """Prepare this process by its arguments, then replace it with the command after `--`."""
    arguments = _parse(sys.argv[1:])
    os.umask(0o077)  # else every local user could connect to SeaweedFS's Unix sockets in /tmp
    if arguments.lock is not None:
        hold_lock(arguments.lock)
    if arguments.namespace_uid is not None:
        enter_user_namespace(arguments.namespace_uid)
    if arguments.uid is not None:
        drop_privileges(arguments.uid, arguments.gid)
    if arguments.death_signal is not None:
        set_parent_death_signal(arguments.death_signal, arguments.parent)
    os.execv(arguments.command[0], arguments.command)  # noqa: S606 - an argument list, no shell


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lock", type=Path)
    parser.add_argument("--namespace-uid", type=int)
    parser.add_argument("--uid", type=int)
    parser.add_argument("--gid", type=int)
    parser.add_argument("--death-signal", type=int)
    parser.add_argument("--parent", type=int)
    parser.add_argument("command", nargs="+")
    return parser.parse_args(arguments)


def hold_lock(path: Path) -> None:
    """Lock the file while this process or a child of it lives; write the process id into it.

    The descriptor deliberately survives exec: if the file is locked, its process id is valid.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.ftruncate(descriptor, 0)
    os.write(descriptor, b"%d\n" % os.getpid())
    os.set_inheritable(descriptor, True)


def enter_user_namespace(uid: int) -> None:
    """Map root to the ordinary user `uid` in this process; it keeps access to root's files.

    PostgreSQL refuses to run as root. In this namespace it sees `uid`, and no file has to be
    copied or owned by another account. Exits with NO_NAMESPACE if the system forbids it, as many
    containers do.
    """
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWUSER) != 0:
        sys.exit(NO_NAMESPACE)
    try:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} 0 1")
        Path("/proc/self/gid_map").write_text(f"{uid} 0 1")
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES, errno.ENOENT):
            sys.exit(NO_NAMESPACE)
        raise


def drop_privileges(uid: int, gid: int) -> None:
    """Change to the given user and group, irrevocably."""
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def set_parent_death_signal(signal: int, parent: int) -> None:
    """Request `signal` from Linux for when the thread that started this process ends (prctl(2))."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal)
    if os.getppid() != parent:  # the parent ended before the call: there will be no signal
        sys.exit(1)


if __name__ == "__main__":
    main()
