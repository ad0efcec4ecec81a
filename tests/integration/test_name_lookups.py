"""Look-ups of names by digest, whatever statistics PostgreSQL has of other experiments."""

from __future__ import annotations

import psycopg
import pytest
from sqlalchemy import text

from support.batches import scalars, segment, stream
from tbservice.series.tables import runs_tags, series_rows

TAGS = 7_000
"""Names of an experiment."""

MAKE_HIGHER = "ALTER INDEX tags_by_name SET (fillfactor = 10)"
"""Makes the index of names a level higher than that of ids, as it is with 700,000 names.

PostgreSQL would take the lower one for an experiment that has no rows in its statistics.
"""

FILL = """
    INSERT INTO tags (experiment_id, workspace_id, tag_id, name, name_digest)
    SELECT %s, %s, 1000000 + n, 'tag' || n, sha256(('tag' || n)::bytea)
    FROM generate_series(1, %s) AS n
"""


def explain(db, statement, parameters):
    rows = db.exec_driver_sql(f"EXPLAIN {statement}", parameters)
    return "\n".join(line for (line,) in rows)


@pytest.mark.plain("reads plans of one server")
@pytest.mark.own_database
def test_names_of_new_experiment_are_found_by_digest(api, database, owner_url, workspace_id):
    others = [api.new_experiment(), api.new_experiment()]
    with psycopg.connect(owner_url) as db:
        db.execute("SELECT set_config('tbhub.workspace_id', %s, true)", [str(workspace_id)])
        for other in others:
            db.execute(FILL, [other, workspace_id, TAGS])
        db.execute(MAKE_HIGHER)
        db.execute("REINDEX INDEX tags_by_name")
        db.execute("ANALYZE tags")

    new = api.new_experiment()
    values = {"experiment_id": new, "workspace_id": workspace_id}
    with database.transaction(workspace_id) as db:
        find = str(text(runs_tags._RESOLVE_TAGS.whole).compile(db.engine))
        plan = explain(db, find, values | {"names": ["a"], "digests": [b"a"]})
        assert "tags_by_name" in plan
        assert "tags_pkey" not in plan
        lookup = series_rows._find_tag(db).replace("w.tag_digest", "%(digest)s::bytea")
        plan = explain(db, lookup, values | {"digest": b"a"})
        assert "tags_by_name" in plan
        assert "tags_pkey" not in plan

    written = api.write(new, segment(stream(), 0, 1, scalars("loss", range(3))))
    assert written.scalars == 3
