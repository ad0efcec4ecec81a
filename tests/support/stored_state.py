"""Everything the server stores of an experiment, in a form that is equal for two uploads of the
same files.
"""

from __future__ import annotations

import hashlib

import psycopg

from support.uploading import Reader
from support.waiting import wait_until

POINTS = 100_000
UNAVAILABLE = 503


def stored_state(reader: Reader, experiment_id: str) -> dict:
    """Return runs, plugins, descriptions of series, all points, digests of blobs, and cursors of
    streams.
    """
    state = {
        "runs": sorted(reader.get(experiment_id, "runs")["runs"], key=lambda run: run["run"]),
        "plugins": reader.get(experiment_id, "plugins")["plugins"],
        "streams": sorted(reader.get(experiment_id, "streams")["streams"], key=_stream_name),
    }
    for kind in ("scalars", "tensors", "blob_sequences"):
        state[kind] = reader.get(experiment_id, kind)
        state[f"{kind}/data"] = reader.get(experiment_id, f"{kind}/data", downsample=POINTS)
    for tags in state["blob_sequences/data"].values():
        for columns in tags.values():
            columns["values"] = [
                [_digest(reader, blob["key"]) for blob in step] for step in columns["values"]
            ]
    return state


def _stream_name(stream: dict) -> tuple:
    return stream["run"], stream["file_name"], stream["first_record_digest"], stream["generation"]


def _digest(reader: Reader, key: str) -> str:
    """Return the SHA-256 of a blob; wait while S3 is taken for away, also just after its restart."""

    def read() -> bytes | None:
        answer = reader.http.get(f"/api/v1/blobs/{key}")
        if answer.status_code == UNAVAILABLE:
            return None
        answer.raise_for_status()
        return hashlib.sha256(answer.content).digest()

    return wait_until(read).hex()


def runs_with_duplicates(superuser: psycopg.Connection, experiment_id: str) -> set[str]:
    """Return the runs with a scalar series that may store a point twice, which no read shows.

    Either its row says that points came again or out of order; or more points are stored than its
    row counts.
    """
    rows = superuser.execute(
        """
        SELECT DISTINCT runs.name FROM time_series AS s JOIN runs USING (experiment_id, run_id)
        WHERE s.experiment_id = %s AND s.data_class = 1 AND (NOT s.count_is_exact OR s.count <>
            coalesce(length(s.tail_end) / 24, 0)
            + (SELECT coalesce(sum(t.count), 0) FROM scalar_tail AS t
                WHERE t.experiment_id = s.experiment_id AND t.series_id = s.series_id)
            + (SELECT coalesce(sum(b.count), 0) FROM scalar_blocks AS b
                WHERE b.experiment_id = s.experiment_id AND b.series_id = s.series_id AND level <= 0))
        """,
        [experiment_id],
    )
    return {name for (name,) in rows}
