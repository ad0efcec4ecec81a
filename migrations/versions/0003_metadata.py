"""Add metadata of experiments: tags, notes, properties, origin, size, deletion, and words to find.

Search must be fast in a workspace of 100,000 experiments, under row-level security, which allows
only leakproof operators as conditions of an index. Those of full text search, arrays and trigrams
are not leakproof; comparisons of text are: so a word is a row.
"""

from alembic import op

revision = "0003_metadata"
down_revision = "0002_people"
branch_labels = None
depends_on = None

LOCKS = {"experiments": "ACCESS EXCLUSIVE", "time_series": "ACCESS EXCLUSIVE"}

METADATA = """
ALTER TABLE experiments
    ADD COLUMN tags text[] NOT NULL DEFAULT '{}',  -- for people, sorted; not the tags of series
    ADD COLUMN notes text NOT NULL DEFAULT '',  -- Markdown
    ADD COLUMN properties jsonb NOT NULL DEFAULT '{}',  -- key-value pairs, the values are texts
    ADD COLUMN origin jsonb NOT NULL DEFAULT '{}',  -- where it came from: host, user, command, git
    ADD COLUMN deleted_at timestamptz,  -- its owner deleted it: hidden from then on
    -- When a deleted one is erased, which can be restored until then; or a snapshot, with its link.
    ADD COLUMN erase_at timestamptz,
    ADD COLUMN number bigserial,  -- order of creation; never shown
    ADD COLUMN is_listed boolean NOT NULL DEFAULT true,  -- false: deleted, or another's snapshot
    -- The beginning of the name, case-folded: lists are sorted by it.
    ADD COLUMN name_key text COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN points bigint NOT NULL DEFAULT 0,  -- that arrived, also those superseded since
    ADD COLUMN bytes bigint NOT NULL DEFAULT 0,  -- of these points: an estimate
    -- `bytes` and the time of the last data as lists show and sort them. They are behind,
    -- by a twentieth and a minute at most: an index on what each batch changes would rule out HOT
    -- updates.
    ADD COLUMN listed_bytes bigint NOT NULL DEFAULT 0,
    ADD COLUMN data_at timestamptz NOT NULL DEFAULT now();
-- The policies apply to the owner of the tables too, who names no workspace here.
ALTER TABLE experiments NO FORCE ROW LEVEL SECURITY;
ALTER TABLE time_series NO FORCE ROW LEVEL SECURITY;
UPDATE experiments AS e SET name_key = left(lower(name), 100), data_at = updated_at,
    points = s.points, bytes = s.bytes, listed_bytes = s.bytes, number = s.number
FROM (
    -- Tensors and blobs that are there already are not estimated: all of them would be read.
    SELECT e.experiment_id, row_number() OVER (ORDER BY e.created_at, e.experiment_id) AS number,
        coalesce(sum(t.count), 0) AS points,
        coalesce(sum(t.count) FILTER (WHERE t.data_class = 1), 0) * 12 AS bytes
    FROM experiments AS e LEFT JOIN time_series AS t USING (experiment_id)
    GROUP BY e.experiment_id
) AS s WHERE s.experiment_id = e.experiment_id;
ALTER TABLE time_series FORCE ROW LEVEL SECURITY;

-- Lists of a workspace, in each order and its reverse. They include what searches and the policies
-- read: a search whose matches are the last in the order reads the index alone.
DROP INDEX experiments_by_age;
CREATE INDEX experiments_by_number ON experiments (workspace_id, number) WHERE is_listed;
CREATE INDEX experiments_by_name ON experiments (workspace_id, name_key, experiment_id)
    INCLUDE (number, deleted_at, erase_at) WHERE is_listed;
-- Of all experiments: the search for what was left uncompacted uses it too.
CREATE INDEX experiments_by_data ON experiments (workspace_id, data_at, experiment_id)
    INCLUDE (number, deleted_at, erase_at, is_listed);
CREATE INDEX experiments_by_size ON experiments (workspace_id, listed_bytes, experiment_id)
    INCLUDE (number, deleted_at, erase_at) WHERE is_listed;
-- Deleted ones: their list, and what is to be erased.
CREATE INDEX experiments_deleted ON experiments (workspace_id, deleted_at, experiment_id)
    WHERE deleted_at IS NOT NULL;
CREATE INDEX experiments_to_erase ON experiments (erase_at) WHERE erase_at IS NOT NULL;
"""

WORDS = """
-- One row per word of a listed experiment's texts: of name, tags, description, notes, properties,
-- and people. `#tag`, `@user id` and `=visibility` are words that no text has.
-- Distribution key: workspace_id. Not keyed by `experiment_id`, of three times the bytes of
-- the number, in each of very many rows, and has no order.
CREATE TABLE experiment_words (
    workspace_id bigint NOT NULL,
    word text COLLATE "C" NOT NULL,  -- case-folded
    number bigint NOT NULL,  -- of the experiment; no foreign key: deleted when it is hidden
    PRIMARY KEY (workspace_id, word, number)
);
-- Has an experiment this word? And deletion.
CREATE INDEX experiment_words_by_number ON experiment_words (workspace_id, number, word);
ALTER TABLE experiment_words ENABLE ROW LEVEL SECURITY;
ALTER TABLE experiment_words FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON experiment_words
    USING (workspace_id = (SELECT current_workspace()));

INSERT INTO experiment_words
    SELECT e.workspace_id, w.word, e.number
    FROM experiments AS e CROSS JOIN LATERAL (
        SELECT DISTINCT left(word, 40) AS word
        FROM regexp_split_to_table(
            lower(left(e.name || ' ' || e.description, 10000)), '[^[:alnum:]]+') AS word
        WHERE word <> ''
        LIMIT 499
    ) AS w
    UNION ALL SELECT workspace_id, '=' || visibility, number FROM experiments;
SELECT setval('experiments_number_seq', greatest(1, (SELECT max(number) FROM experiments)));
ALTER TABLE experiments FORCE ROW LEVEL SECURITY;
"""

# A deleted experiment looks like none, to every statement that does not ask for deleted ones.
POLICIES = """
CREATE FUNCTION shows_deleted() RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE AS
$$ SELECT coalesce(current_setting('tbhub.shows_deleted', true) = 'on', false) $$;

DROP POLICY tenant ON experiments;
CREATE POLICY tenant ON experiments
    USING (workspace_id = (SELECT current_workspace())
        AND (deleted_at IS NULL OR (SELECT shows_deleted())));
DROP POLICY known_by_id ON experiments;
CREATE POLICY known_by_id ON experiments FOR SELECT
    USING (experiment_id = (SELECT current_setting('tbhub.experiment_id', true))
        AND deleted_at IS NULL);

-- The background work that erases looks for what is due, in all workspaces.
CREATE POLICY due_seen ON experiments FOR SELECT
    USING (erase_at
        < nullif((SELECT current_setting('tbhub.erase_before', true)), '')::timestamptz);
"""


def upgrade() -> None:
    """Add the columns, indexes, words and policies."""
    for statements in (METADATA, WORDS, POLICIES):
        op.get_bind().exec_driver_sql(statements)
