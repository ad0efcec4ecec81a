"""A disk that is small: commands run in a mount namespace of their own, as its root."""

from __future__ import annotations

import shlex
from pathlib import Path

from support.programs import require_namespace


def on_small_disk(directory: Path, size_bytes: int) -> list[str]:
    """Return what a command begins with that finds a disk of `size_bytes` at `directory`."""
    require_namespace()
    directory.mkdir()
    mount = f"mount -t tmpfs -o size={size_bytes} none {shlex.quote(str(directory))}"
    namespace = ["unshare", "--user", "--map-root-user", "--mount"]
    return [*namespace, "sh", "-c", f'{mount} && exec "$0" "$@"']
