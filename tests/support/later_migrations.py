"""Migrations of a later release: a copy of the program's directory, to which a test adds some."""

from __future__ import annotations

import shutil
from pathlib import Path

from tbservice.db import schema_versions

MIGRATION = """
from alembic import op

revision = {name!r}
down_revision = {previous!r}
branch_labels = None
depends_on = None

{constants}


def upgrade():
    for statement in {statements!r}:
        op.get_bind().exec_driver_sql(statement)
"""


class Migrations:
    """Migrations that this process takes for the program's, while the fixture lasts."""

    def __init__(self, directory: Path, monkeypatch) -> None:
        shutil.copytree(schema_versions.find_migrations(), directory)
        monkeypatch.setattr(schema_versions, "find_migrations", lambda: directory)
        self._versions = directory / "versions"

    def add(self, name: str, *statements: str, **constants) -> None:
        """Add a migration after all others; its constants are LOCKS, CONCURRENT and others."""
        previous = max(file.stem for file in self._versions.glob("[0-9]*.py"))
        lines = "\n".join(f"{constant} = {value!r}" for constant, value in constants.items())
        content = MIGRATION.format(
            name=name, previous=previous, constants=lines, statements=statements
        )
        (self._versions / f"{name}.py").write_text(content)

    def remove(self, name: str) -> None:
        """Leave a migration out, as a program of before does not have it."""
        (self._versions / f"{name}.py").unlink()
