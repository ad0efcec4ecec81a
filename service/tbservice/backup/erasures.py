"""The list of what was erased, beside the backups of a target: a restore erases it again.

Each backup adds what was erased by then. A restored database knows nothing of what came later.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tbservice.backup.manifest import BackupDamaged
from tbservice.backup.tables.backup_snapshot import Erasure
from tbservice.backup.targets import Target

ERASURES: Final = "erasures.tsv"
"""The file of a target, of all of its backups."""


def read(target: Target) -> set[Erasure]:
    """Return the list, which is empty before the first backup. Raises BackupDamaged."""
    if target.find_size(ERASURES) is None:
        return set()
    lines = b"".join(target.read(ERASURES)).decode().splitlines()
    try:
        return {_parse(line) for line in lines}
    except (ValueError, TypeError) as error:
        raise BackupDamaged(f"{ERASURES} is damaged") from error


def add(target: Target, erased: Iterable[Erasure]) -> None:
    """Add to the list, and keep what it has: records of the audit log expire."""
    known = read(target)
    every = known.union(erased)
    if every != known:
        lines = ("\t".join(map(str, each)) + "\n" for each in sorted(every))
        target.write(ERASURES, ["".join(lines).encode()])


def _parse(line: str) -> Erasure:
    erased_at, kind, workspace_id, *rest = line.split("\t")
    return Erasure(erased_at, kind, int(workspace_id), *rest)
