"""Keep points that a restarted job superseded, so that earlier attempts of a run can be read.

See docs/decisions/0029. Streams of before have no times: nothing says when their files began.
"""

from alembic import op

revision = "0006_attempts"
down_revision = "0005_content"
branch_labels = None
depends_on = None

LOCKS = {
    "link_views.runs": "ACCESS EXCLUSIVE",
    "runs": "ACCESS EXCLUSIVE",
    "upload_streams": "ACCESS EXCLUSIVE",
}

TIMES = """
ALTER TABLE upload_streams
    ADD COLUMN start_time float8,  -- wall time of the file's first record; NULL: unknown
    ADD COLUMN last_wall_time float8;  -- greatest wall time of a point; NULL: none came since
-- The files of a run in the order in which they began. No batch changes an indexed column.
CREATE INDEX upload_streams_by_run
    ON upload_streams (experiment_id, run_id, start_time NULLS FIRST);

ALTER TABLE runs
    ADD COLUMN last_start_time float8;  -- greatest wall time of a first event
-- Only runs of which a file began after the first can have attempts.
CREATE INDEX runs_of_several_starts ON runs (experiment_id)
    WHERE last_start_time > start_time;
"""

# `period_start` is the last restart before the points, '-infinity' for none, as it was known when
# they were superseded: the attempt that they belong to follows from it.
TABLES = """
-- Up to 8,192 superseded points of a scalar series and of one period, packed.
-- Distribution key: experiment_id.
CREATE TABLE superseded_blocks (
    experiment_id text COLLATE "C" NOT NULL,
    series_id bigint NOT NULL,
    block_id bigserial,
    workspace_id bigint NOT NULL,
    period_start float8 NOT NULL,
    -- The restart whose points superseded these; NULL: compare all points of the series to know.
    superseded_by float8,
    count integer NOT NULL,
    first_step bigint NOT NULL,
    last_step bigint NOT NULL,
    data bytea STORAGE EXTERNAL NOT NULL,
    PRIMARY KEY (experiment_id, series_id, block_id)
);

-- One row per superseded tensor point; at most one per step and period.
-- Distribution key: experiment_id.
CREATE TABLE superseded_tensors (
    experiment_id text COLLATE "C" NOT NULL,
    series_id bigint NOT NULL,
    rank smallint NOT NULL,
    sample_key bigint NOT NULL,
    period_start float8 NOT NULL,
    workspace_id bigint NOT NULL,
    step bigint NOT NULL,
    wall_time float8 NOT NULL,
    dtype smallint NOT NULL,
    shape bigint[] NOT NULL,
    data bytea,
    histogram bytea,
    object_sha256 bytea,
    object_size bigint,
    CONSTRAINT superseded_tensors_data CHECK (
        (data IS NULL) = (object_sha256 IS NOT NULL) AND (data IS NULL) = (object_size IS NOT NULL)
    ),
    PRIMARY KEY (experiment_id, series_id, rank, sample_key, period_start)
);
CREATE INDEX superseded_tensors_by_step ON superseded_tensors (experiment_id, series_id, step);

-- The same of blob sequence points. Distribution key: experiment_id.
CREATE TABLE superseded_blobs (
    experiment_id text COLLATE "C" NOT NULL,
    series_id bigint NOT NULL,
    rank smallint NOT NULL,
    sample_key bigint NOT NULL,
    period_start float8 NOT NULL,
    workspace_id bigint NOT NULL,
    step bigint NOT NULL,
    wall_time float8 NOT NULL,
    digests bytea[] NOT NULL,
    logged_content_type text NOT NULL DEFAULT '',
    PRIMARY KEY (experiment_id, series_id, rank, sample_key, period_start)
);
CREATE INDEX superseded_blobs_by_step ON superseded_blobs (experiment_id, series_id, step);

DO $$
DECLARE name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['superseded_blocks', 'superseded_tensors', 'superseded_blobs']
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY tenant ON %I '
                       'USING (workspace_id = (SELECT current_workspace()))', name);
    END LOOP;
END $$;
"""

# Readers of a restricted link need the times of a visible run's files, but no names of them.
VIEWS = """
CREATE OR REPLACE VIEW link_views.runs AS SELECT * FROM runs
    WHERE (SELECT link_views.shows_all('tbhub.visible_runs'))
        OR run_id IN (SELECT link_views.visible_ids('tbhub.visible_runs'));
CREATE VIEW link_views.upload_streams AS
    SELECT experiment_id, run_id, stream_digest, start_time, last_wall_time FROM upload_streams
    WHERE (SELECT link_views.shows_all('tbhub.visible_runs'))
        OR run_id IN (SELECT link_views.visible_ids('tbhub.visible_runs'));

DO $$
DECLARE name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['superseded_blocks', 'superseded_tensors', 'superseded_blobs']
    LOOP
        EXECUTE format('CREATE VIEW link_views.%1$I AS SELECT * FROM %1$I '
            'WHERE (SELECT true FROM link_views.time_series AS s '
                'WHERE s.experiment_id = %1$I.experiment_id AND s.series_id = %1$I.series_id)',
            name);
    END LOOP;
END $$;
"""


def upgrade() -> None:
    """Add the columns, the tables and the views."""
    for statements in (TIMES, TABLES, VIEWS):
        op.get_bind().exec_driver_sql(statements)
