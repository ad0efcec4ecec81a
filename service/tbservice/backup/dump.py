"""Run pg_dump and pg_restore with the dump as a stream, so that it needs no disk of its own."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Final

from tbservice.backup.client_programs import make_environment
from tbservice.backup.manifest import BackupDamaged, StoredFile
from tbservice.errors import CommandFailed

_READ_BYTES: Final = 256 * 1024
_STDERR_LINES_SHOWN: Final = 3

NOT_DUMPED: Final = ("sign_in_attempts", "device_logins")
"""Tables of which a dump has no rows: they last minutes, and have secrets that are no digests."""


def dump(url: str, program: Path, snapshot_id: str) -> Iterator[bytes]:
    """Yield the dump of a snapshot, in pg_dump's custom format.

    Args:
        url: A libpq URL of a role that sees all rows.
        program: pg_dump.
        snapshot_id: An exported snapshot, whose transaction is open until the end.

    Raises:
        CommandFailed: pg_dump fails: the message has what it said.
    """
    command: list[str | Path] = [
        program,
        "--format=custom",
        "--compress=gzip:1",  # blocks are packed: what there is to gain is their hexadecimal digits
        f"--snapshot={snapshot_id}",
        "--lock-wait-timeout=60s",
        *(f"--exclude-table-data={table}" for table in NOT_DUMPED),
    ]
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(
            command,
            env=make_environment(url),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
            start_new_session=True,  # Ctrl-C is ours to handle
        ) as process,
    ):
        assert process.stdout is not None  # noqa: S101 - a pipe
        try:
            while chunk := process.stdout.read(_READ_BYTES):
                yield chunk
            if process.wait() != 0:
                raise CommandFailed(f"pg_dump failed: {_last_lines(said)}")
        finally:
            process.kill()


def restore(url: str, program: Path, file: StoredFile, chunks: Iterable[bytes]) -> None:
    """Restore a dump into an empty database, in one transaction: all of it or nothing.

    Args:
        url: A libpq URL of the role that shall own everything.
        program: pg_restore.
        file: Expected counts of the dump: it is not committed otherwise.
        chunks: The bytes of the dump.

    Raises:
        BackupDamaged: The dump has another digest.
        CommandFailed: pg_restore fails.
    """
    environment = make_environment(url)
    command: list[str | Path] = [
        program,
        f"--dbname={environment.get('PGDATABASE', '')}",
        "--no-owner",
        "--no-privileges",
        "--exit-on-error",
        "--single-transaction",
    ]
    _feed(command, environment, _check_digest(file, chunks))


def list_contents(program: Path, file: StoredFile, chunks: Iterable[bytes]) -> None:
    """Let pg_restore read a dump without restoring it. Raises as `restore` does."""
    _feed([program, "--file=/dev/null"], {}, _check_digest(file, chunks))


def _feed(
    command: Sequence[str | Path], environment: dict[str, str], chunks: Iterator[bytes]
) -> None:
    """Run a program with these bytes as its input. It never gets the end of wrong ones."""
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,
        ) as process,
    ):
        assert process.stdin is not None  # noqa: S101 - a pipe
        try:
            for chunk in chunks:
                process.stdin.write(chunk)
            process.stdin.close()
            code = process.wait()
        except BrokenPipeError:
            code = process.wait()
        except BaseException:
            process.kill()
            raise
        if code != 0:
            raise CommandFailed(f"pg_restore failed: {_last_lines(said)}")


def _check_digest(file: StoredFile, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the chunks, the last one only if all of them are what they must be."""
    digest, size, held = hashlib.sha256(), 0, b""
    for chunk in chunks:
        if held:
            yield held
        held = chunk
        digest.update(chunk)
        size += len(chunk)
    if (size, digest.hexdigest()) != (file.bytes, file.sha256):
        raise BackupDamaged(f"{file.name} is damaged: it is not what the manifest says")
    yield held


def _last_lines(said: IO[bytes]) -> str:
    said.seek(0)
    lines = said.read().decode(errors="replace").strip().splitlines()
    return " / ".join(lines[-_STDERR_LINES_SHOWN:]) or "it said nothing"
