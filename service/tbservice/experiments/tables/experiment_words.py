"""Queries on `experiment_words`: the words by which listed experiments are found."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from sqlalchemy import Connection, text

from tbservice.db.arrays import encode_array
from tbservice.types.identifiers import WorkspaceId

_FIRST_CHARACTER: Final = "\x01"
_LAST_CHARACTER: Final = "\U0010ffff"


class WordRange(NamedTuple):
    """The words from `low` to before `high`."""

    low: str
    high: str


def beginning(prefix: str) -> WordRange:
    """Return the range of the words that begin with `prefix`."""
    return WordRange(prefix, prefix + _LAST_CHARACTER)


def exactly(word: str) -> WordRange:
    """Return the range of one complete word."""
    return WordRange(word, word + _FIRST_CHARACTER)


def replace(db: Connection, workspace_id: WorkspaceId, number: int, words: Collection[str]) -> None:
    """Make these the words of the experiment with this number."""
    parameters = {
        "workspace_id": workspace_id,
        "number": number,
        "words": encode_array("text", sorted(words)),
    }
    for statement in (
        """
            DELETE FROM experiment_words
            WHERE workspace_id = :workspace_id AND number = :number
                AND word <> ALL (CAST(:words AS text[]))
        """,
        """
            INSERT INTO experiment_words (workspace_id, word, number)
            SELECT :workspace_id, word, :number FROM unnest(CAST(:words AS text[])) AS word
            ON CONFLICT DO NOTHING
        """,
    ):
        db.execute(text(statement), parameters)


def count_rows(db: Connection, workspace_id: WorkspaceId, words: WordRange, count_max: int) -> int:
    """Count the rows of these words, up to `count_max`."""
    count: int = db.execute(
        text("""
            SELECT count(*) FROM (
                SELECT FROM experiment_words
                WHERE workspace_id = :workspace_id AND word >= :low AND word < :high
                LIMIT :count_max
            ) AS matches
        """),
        {"workspace_id": workspace_id, "count_max": count_max, **words._asdict()},
    ).scalar_one()
    return count


def list_words(
    db: Connection, workspace_id: WorkspaceId, words: WordRange, limit: int
) -> list[str]:
    """Return the first `limit` different words of the range, sorted.

    Each is one look-up in the index, however many experiments have it.
    """
    rows = db.execute(
        text("""
            WITH RECURSIVE words AS (
                (SELECT word FROM experiment_words
                 WHERE workspace_id = :workspace_id AND word >= :low AND word < :high
                 ORDER BY word LIMIT 1)
                UNION ALL
                SELECT (SELECT w.word FROM experiment_words AS w
                        WHERE w.workspace_id = :workspace_id AND w.word > words.word
                            AND w.word < :high
                        ORDER BY w.word LIMIT 1)
                FROM words WHERE words.word IS NOT NULL
            )
            SELECT word FROM words WHERE word IS NOT NULL LIMIT :limit
        """),
        {"workspace_id": workspace_id, "limit": limit, **words._asdict()},
    )
    return [row.word for row in rows]
