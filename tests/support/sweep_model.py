"""A model of one blob's row, its objects in the bucket, and all that writes and deletes them.

It has the steps of `integrity/sweep.py` (decision 46), one for each statement or call to S3 whose
order matters. `explore` tries all interleavings. A process that is suspended takes its next step
late; one that has crashed takes none, and loses its locks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

Local = tuple
"""A process: its next step, and what it remembers. ("ended",) takes no more."""

RETRIES = 1
"""Times that a writer begins again when it is told to."""


class Broken(AssertionError):
    """The invariant does not hold."""


class World(NamedTuple):
    """The tables, locks and the bucket, which all processes share."""

    row: tuple[int, str] | None = (0, "")
    """The key that the blob's row names, and the mark of a sweep; "" for none. None: no row."""

    objects: frozenset[int] = frozenset({0})
    references: frozenset[str] = frozenset({"old"})
    uploads: frozenset[int] = frozenset()
    holders: frozenset[str] = frozenset()
    backups: frozenset[str] = frozenset()
    next_key: int = 1

    def check(self):
        """Raise Broken unless what points refer to has a row, and the object that the row names."""
        if self.references and (self.row is None or self.row[0] not in self.objects):
            raise Broken(f"{sorted(self.references)} refer to {self.row}, bucket {self.objects}")


Step = tuple[World, Local]


class Model:
    """The processes' steps. Guards in `without` are left out, one at a time, to see that each is needed."""

    def __init__(self, without: str = "") -> None:
        self.without = without

    def has(self, guard: str) -> bool:
        return guard != self.without

    # A request that uploads the bytes of the blob, and a point that refers to it.

    def write_look(self, world, _name, retries=RETRIES):
        known = None if world.row is None else world.row[0]
        return world, ("write_head", known, retries)

    def write_head(self, world, _name, known, retries):
        is_there = known is not None and known in world.objects
        return world, (("write_hold", retries) if is_there else ("write_begin", known, retries))

    def write_begin(self, world, _name, known, retries):
        key = world.next_key if self.has("a key is used once") else 0
        begun = world._replace(uploads=world.uploads | {key}, next_key=world.next_key + 1)
        return begun, ("write_put", key, known, retries)

    def write_put(self, world, _name, key, known, retries):
        return world._replace(objects=world.objects | {key}), ("write_record", key, known, retries)

    def write_record(self, world, _name, key, known, retries):
        if key not in world.uploads and self.has("only an upload with a row records its key"):
            return world, self._again(retries)
        world = world._replace(uploads=world.uploads - {key})
        if world.row is None:
            return world._replace(row=(key, "")), ("write_hold", retries)
        if world.row[0] == known:  # lost: the row names the new object from now on
            if world.holders:
                return None
            world = world._replace(row=(key, world.row[1]))
            return world, ("write_discard", known, retries)
        return world, ("write_discard", key, retries)

    def write_discard(self, world, _name, key, retries):
        named = world.row is not None and world.row[0] == key  # only where keys are used again
        objects = world.objects if named else world.objects - {key}
        return world._replace(objects=objects), ("write_hold", retries)

    def write_hold(self, world, name, retries):
        if world.row is None:
            return world, self._again(retries)
        return self._hold(world, name), ("commit", bool(world.row[1]))

    @staticmethod
    def _again(retries):
        return ("write_look", retries - 1) if retries else ("ended",)

    def _hold(self, world, name):
        if not self.has("who refers to a blob holds its row"):
            return world
        return world._replace(holders=world.holders | {name})

    def commit(self, world, name, is_condemned):
        row = world.row
        if is_condemned and row is not None and self.has("who holds a row takes its mark away"):
            row = (row[0], "")
        return world._replace(
            row=row,
            references=world.references | {name},
            holders=world.holders - {name},
        ), ("ended",)

    # A frozen copy: one REPEATABLE READ transaction, which fails if the row has changed.

    def copy_begin(self, world, _name):
        return world, (("copy_hold", world.row) if "old" in world.references else ("ended",))

    def copy_hold(self, world, name, seen):
        if not self.has("a frozen copy holds the rows of its blobs"):
            return world, ("commit", False)
        if world.row != seen:
            return world, ("ended",)
        return self._hold(world, name), ("commit", bool(seen[1]))

    def erase(self, world, _name):
        return world._replace(references=world.references - {"old"}), ("ended",)

    def expire(self, world, _name):
        """Uploads count as left behind: by a clock that may be wrong."""
        return world._replace(uploads=frozenset()), ("ended",)

    # A sweep of the page with this blob, then of objects without a row.

    def sweep_look(self, world, _name):
        has_candidate = world.row is not None and not world.references
        return world, (("sweep_condemn",) if has_candidate else ("sweep_list",))

    def sweep_condemn(self, world, name):
        if world.row is None:
            return world, ("sweep_list",)
        if world.holders and self.has("a mark waits for those who hold the row"):
            return None
        world = world._replace(row=(world.row[0], name))
        looks = self.has("references are read after the mark")
        return world, (("sweep_look_again",) if looks else ("sweep_row",))

    def sweep_look_again(self, world, _name):
        return world, (("sweep_list",) if world.references else ("sweep_row",))

    def sweep_row(self, world, name):
        if world.holders:
            return None
        if world.backups and self.has("no row is deleted while a backup runs"):
            return world, ("ended",)
        is_mine = world.row is not None and world.row[1] == name
        if not is_mine and (world.row is None or self.has("only rows with the sweep's own mark")):
            return world, ("sweep_list",)
        key = world.row[0]
        if not self.has("the object is deleted after the row"):
            return world._replace(objects=world.objects - {key}), ("sweep_row_late",)
        return world._replace(row=None), ("sweep_object", key)

    def sweep_row_late(self, world, name):
        if world.holders:
            return None
        is_mine = world.row is not None and world.row[1] == name
        return (world._replace(row=None) if is_mine else world), ("sweep_list",)

    def sweep_object(self, world, _name, key):
        return world._replace(objects=world.objects - {key}), ("sweep_list",)

    def sweep_list(self, world, _name):
        """List the bucket, read uploads, and read rows: in this order."""
        if not self.has("the bucket is listed before the tables are read"):
            return self.sweep_uploads(world, _name, None)
        return self._read_first(world.objects, world)

    def _read_first(self, listed, world):
        if self.has("uploads are read before rows"):
            return world, ("sweep_uploads", listed)
        return world, ("sweep_rows_early", listed)

    def sweep_rows_early(self, world, _name, listed):
        named = frozenset() if world.row is None else frozenset({world.row[0]})
        return world, ("sweep_uploads_late", listed, named)

    def sweep_uploads_late(self, world, _name, listed, named):
        return world, ("sweep_orphans", listed - named - world.uploads)

    def sweep_uploads(self, world, _name, listed):
        return world, ("sweep_rows", listed, world.uploads)

    def sweep_rows(self, world, _name, listed, uploads):
        named = frozenset() if world.row is None else frozenset({world.row[0]})
        if listed is None:
            return world, ("sweep_list_late", uploads | named)
        return world, ("sweep_orphans", listed - uploads - named)

    def sweep_list_late(self, world, _name, kept):
        return world, ("sweep_orphans", world.objects - kept)

    def sweep_orphans(self, world, _name, keys):
        if not keys:
            return world, ("ended",)
        key = min(keys)
        return world._replace(objects=world.objects - {key}), ("sweep_orphans", keys - {key})

    # A backup: what its snapshot names is copied, from that key or the row's present one.

    def backup_begin(self, world, name):
        if not self.has("a backup locks sweeps out before its snapshot"):
            return world, ("backup_lock_late", world.row)
        return world._replace(backups=world.backups | {name}), ("backup_snapshot",)

    def backup_lock_late(self, world, name, seen):
        return world._replace(backups=world.backups | {name}), ("backup_copy", seen)

    def backup_snapshot(self, world, _name):
        return world, ("backup_copy", world.row)

    def backup_copy(self, world, name, seen):
        keys = {row[0] for row in (seen, world.row) if row is not None}
        if seen is not None and not keys & world.objects:
            raise Broken(f"the backup names {seen}, bucket {world.objects}")
        return world._replace(backups=world.backups - {name}), ("ended",)


@dataclass
class Explored:
    """How many states were reached, and those in which no process has a step left."""

    states: int
    ends: set[World]
    """Worlds in which all processes may have stopped for good: those without a lock."""


def explore(model: Model, processes: dict[str, str], world: World | None = None) -> Explored:
    """Take all steps in all orders, from the first step of each process.

    Raises Broken in the first state in which the invariant does not hold.
    """
    names = tuple(processes)
    start = (world or World(), tuple((step,) for step in processes.values()))
    seen, left = {start}, [start]
    while left:
        for each in _steps(model, names, *left.pop()):
            if each not in seen:
                each[0].check()
                seen.add(each)
                left.append(each)
    ends = {each for each, _ in seen if not each.holders and not each.backups}
    return Explored(len(seen), ends)


def _steps(
    model: Model, names: tuple[str, ...], world: World, locals_: tuple[Local, ...]
) -> Iterator[tuple[World, tuple[Local, ...]]]:
    for index, name in enumerate(names):
        step, *memory = locals_[index]
        if step == "ended":
            continue
        act: Callable[..., Step | None] = getattr(model, step)
        outcomes = [act(world, name, *memory)]
        if name in world.holders or name in world.backups:
            # A crash: PostgreSQL ends the transaction. One without a lock is as if suspended.
            free = world._replace(holders=world.holders - {name}, backups=world.backups - {name})
            outcomes.append((free, ("ended",)))
        for after, local in filter(None, outcomes):
            yield after, (*locals_[:index], local, *locals_[index + 1 :])
