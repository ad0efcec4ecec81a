"""Add what share links have beyond tokens: a slice of runs and tags, anonymity, and snapshots."""

from alembic import op

revision = "0004_sharing"
down_revision = "0003_metadata"
branch_labels = None
depends_on = None

LOCKS = {"experiments": "ACCESS EXCLUSIVE", "tokens": "ACCESS EXCLUSIVE"}

SHARING = """
ALTER TABLE tokens
    ADD COLUMN is_link boolean NOT NULL DEFAULT false,  -- made to be passed on as a link
    ADD COLUMN run_pattern text,  -- RE2 that a run's complete name must match; NULL: all
    ADD COLUMN tag_pattern text,  -- the same of tags
    ADD COLUMN is_anonymous boolean NOT NULL DEFAULT false;  -- hides people, hosts and paths

-- The experiment that this one is an unchanging copy of, for frozen links.
ALTER TABLE experiments
    ADD COLUMN snapshot_of text COLLATE "C" REFERENCES experiments ON DELETE CASCADE;
CREATE INDEX experiments_by_source ON experiments (snapshot_of) WHERE snapshot_of IS NOT NULL;
"""

# What readers of a restricted link see instead of the tables of the same name: their transactions
# have this schema alone in their search_path (store/link_views.py). So a table without a view does
# not exist for them. `tbhub.visible_runs` and `tbhub.visible_tags` are an array of ids, or '*' for
# all; without these settings nothing is visible. Row policies would do the same, but cost everybody
# else 5 to 20 % of the time of small reads (docs/decisions/0025).
#
# Points are visible with their series. The condition on them is evaluated for each row, by the
# primary key of the series: so it cannot change the plan of a query.
VIEWS = """
CREATE SCHEMA link_views;

CREATE FUNCTION link_views.shows_all(setting text) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE AS $$ SELECT current_setting(setting, true) = '*' $$;
CREATE FUNCTION link_views.visible_ids(setting text) RETURNS SETOF bigint
LANGUAGE sql STABLE PARALLEL SAFE AS
$$ SELECT unnest(nullif(nullif(current_setting(setting, true), ''), '*')::bigint[]) $$;

CREATE VIEW link_views.runs AS SELECT * FROM runs
    WHERE (SELECT link_views.shows_all('tbhub.visible_runs'))
        OR run_id IN (SELECT link_views.visible_ids('tbhub.visible_runs'));
CREATE VIEW link_views.tags AS SELECT * FROM tags
    WHERE (SELECT link_views.shows_all('tbhub.visible_tags'))
        OR tag_id IN (SELECT link_views.visible_ids('tbhub.visible_tags'));
CREATE VIEW link_views.time_series AS SELECT * FROM time_series
    WHERE ((SELECT link_views.shows_all('tbhub.visible_runs'))
            OR run_id IN (SELECT link_views.visible_ids('tbhub.visible_runs')))
        AND ((SELECT link_views.shows_all('tbhub.visible_tags'))
            OR tag_id IN (SELECT link_views.visible_ids('tbhub.visible_tags')));

DO $$
DECLARE name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['scalar_tail', 'scalar_blocks', 'tensor_points', 'blob_points']
    LOOP
        EXECUTE format('CREATE VIEW link_views.%1$I AS SELECT * FROM %1$I '
            'WHERE (SELECT true FROM link_views.time_series AS s '
                'WHERE s.experiment_id = %1$I.experiment_id AND s.series_id = %1$I.series_id)',
            name);
    END LOOP;
END $$;

-- Of an anonymous link's experiment, nothing says who made it, and where. Its size would tell of
-- hidden runs.
CREATE VIEW link_views.experiments AS SELECT
    experiment_id, workspace_id, name, description, visibility, version, created_at, updated_at,
    tags, notes, properties, deleted_at, erase_at, data_at, number, 0::bigint AS points,
    0::bigint AS bytes,
    CASE WHEN (SELECT current_setting('tbhub.is_anonymous', true)) = 'false'
        THEN origin ELSE '{}' END AS origin,
    CASE WHEN (SELECT current_setting('tbhub.is_anonymous', true)) = 'false'
        THEN created_by END AS created_by
    FROM experiments;

-- By the digests and the steps of visible points.
CREATE VIEW link_views.blobs AS SELECT * FROM blobs;
CREATE VIEW link_views.sample_slots AS SELECT * FROM sample_slots;
"""


def upgrade() -> None:
    """Add the columns and the views."""
    op.get_bind().exec_driver_sql(SHARING)
    op.get_bind().exec_driver_sql(VIEWS)
