"""Migrations of this program and of a database, and whether the two work together.

Terms: a migration's name is its file's name without `.py` (`0001_schema`), and also its revision in
Alembic. Names start with a number of four digits, so that their order is the order to run them in.
Rules for migrations: CONTRIBUTING.md and docs/decisions/0033.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, text

from tbservice.errors import StartupError

OLDEST_SCHEMA: Final = "0008_uploads"
"""The latest migration that this program cannot do without. Later migrations may be missing.

It must be one that the last release has, so that a new release also runs before the migration.
"""

COMPRESSED_BLOCKS: Final = "0013_compressed_blocks"
"""The first migration whose programs read compressed blocks of scalars.

They are written where the database requires programs to know it: none that would not read them can
start then. A database requires it from its beginning, from `tbservice migrate --compress-blocks`
on, or from a later release's migration that requires it of all (decision 40).
"""

SWEPT_OBJECTS: Final = "0015_object_sweeps"
"""The first migration whose programs lock the blobs that they refer to (decision 46).

Objects are deleted only where the database requires programs to know it: others might refer to an
object while it is deleted.
"""

REQUIRED_REVISION: Final = """
    SELECT to_jsonb(v) ->> 'required_revision' FROM alembic_version AS v
    ORDER BY version_num DESC LIMIT 1
"""
"""A query for the migration that programs must know, NULL for none: without one, the column may be
missing.
"""

_DEVELOPMENT_REVISION: Final = re.compile(r"00(0[1-9]|10)")
"""Revisions of versions before 0.1.0: "0001" to "0010", numbers alone."""


class UnknownMigration(StartupError):
    """The database has a migration with which this program does not work."""


@dataclass(frozen=True, slots=True)
class Migration:
    """A migration, and what its file declares in constants of these names, in upper case."""

    name: str
    locks: dict[str, str] = field(default_factory=dict)
    """Tables of before that it locks against writers, and the mode of each lock."""

    concurrent: bool = False
    """True: it runs outside a transaction, beside writers, and may take hours."""

    required_revision: str | None = None
    """Programs that do not know this migration do not work afterwards; None: all do that did."""

    def describe(self) -> str:
        """Return one line: its name and who waits for it."""
        tables = ", ".join(f"{table} ({mode})" for table, mode in sorted(self.locks.items()))
        if self.concurrent:
            what = f"works beside reads and writes, perhaps for hours: {tables}"
        elif tables:
            what = f"locks for a moment {tables}"
        else:
            what = "locks no table that is in use"
        if self.required_revision:
            what += f"; stop servers that do not know {self.required_revision} first"
        return f"{self.name}: {what}"


def find_migrations() -> Path:
    """Return the migrations' directory: in the installed package, or beside `service/`."""
    package = Path(__file__).parents[1]
    packaged = package / "_migrations"
    return packaged if packaged.is_dir() else package.parents[1] / "migrations"


def list_migrations() -> list[Migration]:
    """Return all migrations of this program, oldest first, without running their files."""
    files = sorted((find_migrations() / "versions").glob("[0-9]*.py"))
    return [Migration(file.stem, **_read_constants(file)) for file in files]


def is_known_migration(name: str) -> bool:
    """Return whether this program has the migration, and so all before it."""
    return (find_migrations() / "versions" / f"{name}.py").is_file()


def list_missing_migrations(db: Connection) -> list[Migration]:
    """Return the migrations that the database lacks, oldest first.

    None are missing in a database of a newer program, if this one works with it too.

    Raises:
        UnknownMigration: This program does not work with the database. The message says what to do.
    """
    applied, required = read_revisions(db)
    migrations = list_migrations()
    names = [migration.name for migration in migrations]
    if applied is None:
        return migrations
    if _DEVELOPMENT_REVISION.fullmatch(applied):
        raise UnknownMigration(
            f"this database was made by a development version before 0.1.0 (migration {applied}), "
            "which cannot be upgraded: export what you need with that version (tbupload export), "
            "then start with an empty database ('tbservice up': with another --data-dir)"
        )
    # Unknown and earlier than our last one: of another branch, never of a newer program.
    if applied not in names and (applied < names[-1] or required not in {None, *names}):
        raise UnknownMigration(
            f"the database has migration {applied}, with which this tbhub does not work: "
            "install a newer version"
        )
    return [migration for migration in migrations if migration.name > applied]


def read_revisions(db: Connection) -> tuple[str | None, str | None]:
    """Return the latest migration of the database, and the one that programs must know.

    The first is None for an empty database. The second is None until the database requires one
    (`db/migrate.py`): before `0013_compressed_blocks`, the column may be missing.
    """
    if db.execute(text("SELECT to_regclass('alembic_version')")).scalar() is None:
        return None, None
    row = db.execute(
        text("""
            SELECT version_num, to_jsonb(v) ->> 'required_revision' AS required_revision
            FROM alembic_version AS v ORDER BY version_num DESC LIMIT 1
        """)
    ).one_or_none()
    return (None, None) if row is None else (row.version_num, row.required_revision)


def _read_constants(file: Path) -> dict[str, Any]:
    names = {"LOCKS", "CONCURRENT", "REQUIRED_REVISION"}
    return {
        node.targets[0].id.lower(): ast.literal_eval(node.value)
        # Parsed, not imported: importing all migrations needs Alembic, which most starts do not
        # load.
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id in names
    }
