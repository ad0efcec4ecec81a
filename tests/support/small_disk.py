"""A disk that is small: commands run in a mount namespace of their own, as its root."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

from support import programs


def on_small_disk(directory: Path, size_bytes: int) -> list[str]:
    """Return what a command begins with that finds a disk of `size_bytes` at `directory`.

    Where the system lends nobody a namespace, as in a container, the test is skipped, and fails
    where the variable CI is set.
    """
    directory.mkdir()
    namespace = ["unshare", "--user", "--map-root-user", "--mount"]
    tried = subprocess.run([*namespace, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        programs.skip(tried.stderr)
    mount = f"mount -t tmpfs -o size={size_bytes} none {shlex.quote(str(directory))}"
    return [*namespace, "sh", "-c", f'{mount} && exec "$0" "$@"']
