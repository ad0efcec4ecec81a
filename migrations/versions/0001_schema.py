"""The schema of 0.1.0: workspaces, tokens, experiments, series and points, blobs, uploads, trials.

Terms are those of docs/glossary.md; three SQL names differ: `scalar_tail` is the write buffer,
`time_series.tail_end` the inline buffer, and `tail_rows` and `tail_points` count the points that
compaction has not processed yet.

"Distribution key" names the column by which a table is distributed on a cluster: see docs/citus.md.
Every key of a table below an experiment begins with `experiment_id`, so that the rows of an
experiment, and the joins and foreign keys between them, are on one shard.
"""

from alembic import op

revision = "0001_schema"  # the file's name: development versions before 0.1.0 used bare numbers
down_revision = None
branch_labels = None
depends_on = None

# Ids come from sequences (bigserial): store/runs_tags.py draws some of them before it inserts.
# Ids that are text are COLLATE "C": compared as bytes, in the same order on every system.
WORKSPACES = """
-- One row per workspace, the tenant. Distribution key: none (a reference table, few rows).
CREATE TABLE workspaces (
    workspace_id bigserial PRIMARY KEY,
    name text NOT NULL,  -- for people; not unique
    created_at timestamptz NOT NULL DEFAULT now()
);

-- One row per experiment. Distribution key: experiment_id.
CREATE TABLE experiments (
    experiment_id text COLLATE "C" PRIMARY KEY,  -- 128 random bits in base62, 22 characters
    workspace_id bigint NOT NULL REFERENCES workspaces,
    name text NOT NULL,
    description text NOT NULL,
    visibility text NOT NULL CHECK (visibility IN ('private', 'link')),
    request_key text,  -- idempotency key of the request that created it
    version bigint NOT NULL DEFAULT 0,  -- grows with every change of the data: "has it changed?"
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);  -- each batch updates `version`: room for HOT updates in the page
-- Listing of a workspace, newest first.
CREATE INDEX experiments_by_age ON experiments (workspace_id, created_at DESC, experiment_id);
-- Repeated creation requests. Not unique: an advisory lock orders requests of one key.
CREATE INDEX experiments_by_request ON experiments (workspace_id, request_key)
    WHERE request_key IS NOT NULL;

-- One row per token. Distribution key: none. Authentication reads a token by its digest before it
-- knows a workspace or an experiment, and a unique index would have to contain the key.
CREATE TABLE tokens (
    token_id text COLLATE "C" PRIMARY KEY,  -- shown to people; not the secret
    workspace_id bigint NOT NULL REFERENCES workspaces,
    experiment_id text COLLATE "C" REFERENCES experiments ON DELETE CASCADE,  -- NULL: all of them
    scopes text[] NOT NULL,  -- of append, read, admin
    label text NOT NULL,
    prefix text NOT NULL,  -- the secret's first characters, to recognize it in a listing
    digest bytea NOT NULL,  -- SHA-256 of the secret, which is not stored
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,  -- NULL: never
    revoked_at timestamptz,
    last_used_at timestamptz,  -- written at most once a minute
    is_session boolean NOT NULL DEFAULT false  -- made for a browser; deleted once it has expired
);
-- Authentication.
CREATE UNIQUE INDEX tokens_by_digest ON tokens (digest);
-- Listing, and the cascade from `experiments`.
CREATE INDEX tokens_by_experiment ON tokens (experiment_id);
-- Deletion of expired browser sessions, oldest first.
CREATE INDEX tokens_of_sessions ON tokens (workspace_id, expires_at) WHERE is_session;
"""

# Names may have 10,000 characters, but an index entry at most 2,704 bytes: unique by SHA-256.
# `workspace_id` repeats the experiment's in every table: a policy must not need a join.
SERIES = """
-- One row per run of an experiment. Distribution key: experiment_id.
CREATE TABLE runs (
    experiment_id text COLLATE "C" NOT NULL REFERENCES experiments ON DELETE CASCADE,
    run_id bigserial,  -- also the order in which runs are listed
    workspace_id bigint NOT NULL,
    name text NOT NULL,
    name_digest bytea NOT NULL,  -- SHA-256 of the name
    start_time float8,  -- lowest wall time (seconds since the epoch); NULL before the first point
    PRIMARY KEY (experiment_id, run_id),
    CONSTRAINT runs_by_name UNIQUE (experiment_id, name_digest)
);

-- One row per tag name of an experiment, shared by its runs. Distribution key: experiment_id.
CREATE TABLE tags (
    experiment_id text COLLATE "C" NOT NULL REFERENCES experiments ON DELETE CASCADE,
    tag_id bigserial,
    workspace_id bigint NOT NULL,
    name text NOT NULL,
    name_digest bytea NOT NULL,  -- SHA-256 of the name
    PRIMARY KEY (experiment_id, tag_id),
    CONSTRAINT tags_by_name UNIQUE (experiment_id, name_digest)
);

-- One row per time series: what lists and summaries need, so that they read no points.
-- Distribution key: experiment_id.
CREATE TABLE time_series (
    experiment_id text COLLATE "C" NOT NULL REFERENCES experiments ON DELETE CASCADE,
    series_id bigserial,
    workspace_id bigint NOT NULL,
    run_id bigint NOT NULL,
    tag_id bigint NOT NULL,
    plugin text NOT NULL,
    -- 1 scalar, 2 tensor, 3 blob sequence: DataClass in tensorboard/compat/proto/summary.proto
    data_class smallint NOT NULL CHECK (data_class IN (1, 2, 3)),
    summary_metadata bytea NOT NULL,  -- SummaryMetadata of the same file, serialized
    metadata_wall_time float8 NOT NULL,  -- greatest wall time of a point sent with it
    count bigint NOT NULL DEFAULT 0,  -- points
    count_is_exact boolean NOT NULL DEFAULT true,  -- false: `count` may include superseded points
    sealed_count bigint NOT NULL DEFAULT 0,  -- points in level 0
    tail_rows integer NOT NULL DEFAULT 0,  -- rows in the write buffer
    tail_points bigint NOT NULL DEFAULT 0,  -- scalar points that arrived since the last compaction
    max_length integer NOT NULL DEFAULT 0,  -- most blobs of one step (blob sequences)
    first_step bigint NOT NULL,
    first_wall_time float8 NOT NULL,
    first_value float8,  -- of scalar series; otherwise NULL
    last_step bigint NOT NULL,
    last_wall_time float8 NOT NULL,
    last_value float8,
    -- For change cursors: how many batches had a step at or before the series' last step, and the
    -- lowest such step (2^63 - 1: none). A reader whose `rewrites` differ reads from there again.
    rewrites bigint NOT NULL DEFAULT 0,
    rewritten_from bigint NOT NULL DEFAULT 9223372036854775807,
    -- Greatest wall time. Not always the last step's: a restarted job repeats lower steps later.
    max_wall_time float8 NOT NULL DEFAULT '-infinity',
    -- Inline buffer: the last few scalar points as raw records (24 bytes each), later than every
    -- row of the write buffer. A row of its own per flushed point would cost a third of the flush.
    tail_end bytea NOT NULL DEFAULT '',
    PRIMARY KEY (experiment_id, series_id),
    CONSTRAINT time_series_by_name UNIQUE (experiment_id, run_id, tag_id)
) WITH (fillfactor = 60);  -- each batch updates its series' rows: room for HOT updates in the page
"""

# Points have no foreign key to their series: the check costs 60-80 % of the insert. Code that
# deletes a series deletes its points. STORAGE EXTERNAL: packed bytes do not compress any further.
POINTS = """
-- The write buffer: several scalar points per row, before compaction puts them in blocks.
-- Distribution key: experiment_id.
CREATE TABLE scalar_tail (
    experiment_id text COLLATE "C" NOT NULL,
    series_id bigint NOT NULL,
    block_id bigserial,  -- order of arrival
    workspace_id bigint NOT NULL,
    count integer NOT NULL,  -- points in the row
    is_packed boolean NOT NULL,  -- false: raw records, which can be concatenated; true: one block
    data bytea STORAGE EXTERNAL NOT NULL,
    PRIMARY KEY (experiment_id, series_id, block_id)
);

-- Blocks of up to 8,192 scalar points, packed. Distribution key: experiment_id.
CREATE TABLE scalar_blocks (
    experiment_id text COLLATE "C" NOT NULL,
    series_id bigint NOT NULL,
    level smallint NOT NULL,  -- -1 open, 0 sealed (in step order, no overlap), 1-5 thinned copies
    block_id bigserial,
    workspace_id bigint NOT NULL,
    count integer NOT NULL,
    first_step bigint NOT NULL,
    last_step bigint NOT NULL,
    data bytea STORAGE EXTERNAL NOT NULL,
    PRIMARY KEY (experiment_id, series_id, level, block_id)
);

-- One row per tensor point. (rank, sample_key) is the position of its step in the sample order and
-- depends on the step alone: an index scan of the primary key returns a sample, and the key allows
-- one point per step. Distribution key: experiment_id.
CREATE TABLE tensor_points (
    experiment_id text COLLATE "C" NOT NULL,
    series_id bigint NOT NULL,
    rank smallint NOT NULL,
    sample_key bigint NOT NULL,
    workspace_id bigint NOT NULL,
    step bigint NOT NULL,
    wall_time float8 NOT NULL,
    dtype smallint NOT NULL,  -- DataType in tensorboard/compat/proto/types.proto
    shape bigint[] NOT NULL,
    data bytea,  -- elements in row-major order, little-endian; NULL: they are an object in S3
    histogram bytea,  -- fields of a legacy HistogramProto that `data` was made from
    object_sha256 bytea,
    object_size bigint,  -- bytes
    CONSTRAINT tensor_points_data CHECK (
        (data IS NULL) = (object_sha256 IS NOT NULL) AND (data IS NULL) = (object_size IS NOT NULL)
    ),
    PRIMARY KEY (experiment_id, series_id, rank, sample_key)
);
-- Step ranges, the last k points, and points after a step.
CREATE INDEX tensor_points_by_step ON tensor_points (experiment_id, series_id, step);

-- One row per blob sequence point; keys as in `tensor_points`. Distribution key: experiment_id.
CREATE TABLE blob_points (
    experiment_id text COLLATE "C" NOT NULL,
    series_id bigint NOT NULL,
    rank smallint NOT NULL,
    sample_key bigint NOT NULL,
    workspace_id bigint NOT NULL,
    step bigint NOT NULL,
    wall_time float8 NOT NULL,
    digests bytea[] NOT NULL,  -- SHA-256 of each blob, in order
    -- Content type that was logged with an audio clip; '' for none. Of the point, since one blob
    -- may be logged under several types. Not NULL: the null bitmap of a ninth column would cost 8
    -- bytes per row (alignment), '' costs 1.
    logged_content_type text NOT NULL DEFAULT '',
    PRIMARY KEY (experiment_id, series_id, rank, sample_key)
);
CREATE INDEX blob_points_by_step ON blob_points (experiment_id, series_id, step);
"""

UPLOADS = """
-- One row per blob of a workspace: its bytes are one object in S3, whatever experiments refer to
-- it. The object is written first, the row last. Distribution key: workspace_id.
CREATE TABLE blobs (
    workspace_id bigint NOT NULL REFERENCES workspaces,
    sha256 bytea NOT NULL,
    size bigint NOT NULL,  -- bytes
    content_type text NOT NULL,  -- what it is served as
    created_at timestamptz NOT NULL DEFAULT now(),
    object_suffix text NOT NULL DEFAULT '',  -- end of the object's key, if it was sent in parts
    PRIMARY KEY (workspace_id, sha256)
);

-- Which blobs were uploaded through which experiment. A token of one experiment may refer to these
-- only: knowing a digest proves nothing. Distribution key: experiment_id.
CREATE TABLE experiment_blobs (
    experiment_id text COLLATE "C" NOT NULL REFERENCES experiments ON DELETE CASCADE,
    sha256 bytea NOT NULL,
    workspace_id bigint NOT NULL,
    PRIMARY KEY (experiment_id, sha256)
);

-- One row per unfinished large blob (an S3 multipart upload). Its object has a key of its own, so
-- that it never replaces a verified one. No foreign key to the experiment: after its deletion the
-- parts must still be found and deleted in S3. Distribution key: experiment_id.
CREATE TABLE blob_uploads (
    workspace_id bigint NOT NULL REFERENCES workspaces,
    sha256 bytea NOT NULL,  -- as the client claims; checked when the upload is completed
    size bigint NOT NULL,  -- bytes, of the complete blob
    object_suffix text NOT NULL,
    upload_id text NOT NULL,  -- S3's id of the multipart upload
    touched_at timestamptz NOT NULL DEFAULT now(),  -- time of the last part
    experiment_id text COLLATE "C" NOT NULL DEFAULT '',
    PRIMARY KEY (workspace_id, experiment_id, sha256, size)
);

-- One row per stream (an event file, with a set of filters): its upload cursor.
-- Distribution key: experiment_id.
CREATE TABLE upload_streams (
    experiment_id text COLLATE "C" NOT NULL REFERENCES experiments ON DELETE CASCADE,
    stream_digest bytea NOT NULL,  -- SHA-256 of run, file name and the next three digests
    workspace_id bigint NOT NULL,
    run_id bigint NOT NULL,
    file_name text NOT NULL,
    first_record_digest bytea NOT NULL,  -- tells files of one name apart
    generation integer NOT NULL,  -- grows when the file was truncated or replaced
    filters_digest bytea NOT NULL,
    cursor bigint NOT NULL,  -- committed offset in bytes
    checksum bigint NOT NULL,  -- of the bytes before the cursor: is it still the same file?
    skipped jsonb NOT NULL,  -- counts of values that were not stored, by reason
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (experiment_id, stream_digest)
) WITH (fillfactor = 60);  -- each batch moves cursors: room for HOT updates in the page
"""

KATIB = """
-- One row per experiment of Katib that made requests. Several may share an experiment, if its token
-- was used. Distribution key: experiment_id.
CREATE TABLE katib_experiments (
    experiment_id text COLLATE "C" NOT NULL REFERENCES experiments ON DELETE CASCADE,
    name_digest bytea NOT NULL,  -- SHA-256 of Katib's name
    workspace_id bigint NOT NULL,
    summary_digest bytea NOT NULL,  -- SHA-256 of the experiment summary that was written last
    PRIMARY KEY (experiment_id, name_digest)
);

-- One row per trial of Katib. Distribution key: experiment_id.
CREATE TABLE katib_trials (
    experiment_id text COLLATE "C" NOT NULL REFERENCES experiments ON DELETE CASCADE,
    name_digest bytea NOT NULL,  -- SHA-256 of the trial's name, which is also its run's
    workspace_id bigint NOT NULL,
    -- NULL: only suggested. No foreign key: it would need an index. Code that deletes a run deletes
    -- the trial.
    run_id bigint,
    is_bound boolean NOT NULL,  -- a request named its experiment; false: it was chosen by its name
    assignments bytea NOT NULL,  -- its hyperparameters, as a SessionStartInfo of hparams.proto
    condition smallint,  -- Katib's number, as of version 0.14; NULL: nobody told
    is_inferred boolean NOT NULL DEFAULT false,  -- the condition was concluded from a report
    request_digest bytea,  -- SHA-256 of what the last request said of it, if it was recorded
    log_count bigint NOT NULL DEFAULT 0,  -- logs that were ever reported: the next `seq`
    -- Time (int64, microseconds since the epoch) and digest (16 bytes) of the last reports, by
    -- which a repeated one is recognized.
    recent_reports bytea NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (experiment_id, name_digest)
) WITH (fillfactor = 60);  -- each report updates the row: room for HOT updates in the page
-- Requests name a trial, but no experiment.
CREATE INDEX katib_trials_by_name ON katib_trials (workspace_id, name_digest);

-- One row per reported log of a trial. Neither foreign keys nor unique points: as with points, code
-- that deletes a run deletes its logs. Distribution key: experiment_id.
CREATE TABLE katib_observations (
    experiment_id text COLLATE "C" NOT NULL,
    run_id bigint NOT NULL,
    seq bigint NOT NULL,  -- order of arrival in the trial
    workspace_id bigint NOT NULL,
    tag_id bigint NOT NULL,  -- the metric
    time bigint NOT NULL,  -- as reported: microseconds since the epoch
    received_at float8 NOT NULL,  -- seconds since the epoch
    value bytea NOT NULL,  -- as reported, byte for byte; a text may contain a NUL
    number float8,  -- the value; NULL: it is a text
    step bigint,  -- of the scalar point that was made of it; NULL: none was
    PRIMARY KEY (experiment_id, run_id, seq)
);
"""

# A second check behind the grants: a transaction sees the rows of one workspace, which it names in
# `tbhub.workspace_id`; without the setting it sees none. Nothing is GRANTed to other roles: the
# service connects as the owner of the tables, whom FORCE subjects to the policies. The sub-selects
# make PostgreSQL evaluate a setting once per statement, not per row.
POLICIES = """
CREATE FUNCTION current_workspace() RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE AS
$$ SELECT nullif(current_setting('tbhub.workspace_id', true), '')::bigint $$;

-- All tables but `workspaces` and `sample_slots`, which have no row of a tenant's.
DO $$
DECLARE name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['experiments', 'tokens', 'runs', 'tags', 'time_series',
                                'scalar_tail', 'scalar_blocks', 'tensor_points', 'blob_points',
                                'blobs', 'experiment_blobs', 'blob_uploads', 'upload_streams',
                                'katib_experiments', 'katib_trials', 'katib_observations']
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY tenant ON %I '
                       'USING (workspace_id = (SELECT current_workspace()))', name);
    END LOOP;
END $$;

-- Two rows are read before the workspace is known: an experiment by its exact id, which is
-- unguessable, and a token by the exact digest of its secret.
CREATE POLICY known_by_id ON experiments FOR SELECT
    USING (experiment_id = (SELECT current_setting('tbhub.experiment_id', true)));
CREATE POLICY known_by_digest ON tokens FOR SELECT
    USING (digest = decode((SELECT current_setting('tbhub.token_digest', true)), 'hex'));

-- A request that begins a large blob also deletes abandoned uploads, of any workspace. Only that
-- transaction sets `tbhub.left_before`, the time before which an upload counts as abandoned.
CREATE POLICY left_seen ON blob_uploads FOR SELECT
    USING (touched_at
        < nullif((SELECT current_setting('tbhub.left_before', true)), '')::timestamptz);
CREATE POLICY left_deleted ON blob_uploads FOR DELETE
    USING (touched_at
        < nullif((SELECT current_setting('tbhub.left_before', true)), '')::timestamptz);
"""

# The slot of a step, for queries by hand: the top 16 bits of splitmix64 (Steele, Lea and Flood
# 2014), as tbservice/sample_order.py computes it. numeric, as PostgreSQL has no unsigned integers.
SPLITMIX64 = """
CREATE FUNCTION sample_slot(step bigint) RETURNS integer
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    modulus CONSTANT numeric := 18446744073709551616;
    mask CONSTANT bit(64) := ~(0::bit(64));
    z numeric;
    b bit(64);
BEGIN
    z := mod(step::numeric + 11400714819323198485 + modulus, modulus);
    b := (CASE WHEN z >= 9223372036854775808 THEN z - modulus ELSE z END)::bigint::bit(64);
    b := b # (b >> 30);
    z := mod((CASE WHEN b::bigint < 0 THEN b::bigint::numeric + modulus ELSE b::bigint::numeric END)
             * 13787848793156543929, modulus);
    b := (CASE WHEN z >= 9223372036854775808 THEN z - modulus ELSE z END)::bigint::bit(64);
    b := b # (b >> 27);
    z := mod((CASE WHEN b::bigint < 0 THEN b::bigint::numeric + modulus ELSE b::bigint::numeric END)
             * 10723151780598845931, modulus);
    b := (CASE WHEN z >= 9223372036854775808 THEN z - modulus ELSE z END)::bigint::bit(64);
    b := b # (b >> 31);
    RETURN (b & mask)::bit(16)::integer;
END $$;
"""

# Rank 15 is every slot; each rank below has about half of the slots of the one above.
RANKS = 16
# With this seed a new table gives rank 0 two slots, as expected; other seeds gave 0, 1 or 5.
SAMPLE_SEED = 42

# The rank of a slot is the lowest draw that it is part of. Draws of one table with one seed are
# nested. TABLESAMPLE depends on where rows lie in the table, so the result is stored: ranks never
# change, and a restored database has the same.
SLOTS = f"""
-- One row per sample slot, a class of steps. Distribution key: none (a reference table).
CREATE TABLE sample_slots (
    slot integer PRIMARY KEY,  -- 0 to 65,535
    rank smallint NOT NULL  -- 0 (kept longest) to 15
);
INSERT INTO sample_slots (slot, rank)
    SELECT slot, {RANKS - 1} FROM generate_series(0, 65535) AS slot;

CREATE TEMPORARY TABLE drawn_slots (slot integer, rank smallint) ON COMMIT DROP;
DO $$
BEGIN
    FOR rank IN 0 .. {RANKS - 2} LOOP
        EXECUTE format('INSERT INTO drawn_slots SELECT slot, %s FROM sample_slots
                        TABLESAMPLE BERNOULLI (%s) REPEATABLE ({SAMPLE_SEED})',
                       rank, 100 / power(2::numeric, {RANKS - 1} - rank));
    END LOOP;
END $$;
UPDATE sample_slots SET rank = finest.rank
    FROM (SELECT slot, min(rank) AS rank FROM drawn_slots GROUP BY slot) AS finest
    WHERE finest.slot = sample_slots.slot;
"""  # noqa: S608 - the two numbers are the constants above


def upgrade() -> None:
    """Create all tables and policies, then draw the rank of each sample slot."""
    for statements in (
        WORKSPACES,
        SERIES,
        POINTS,
        UPLOADS,
        KATIB,
        POLICIES,
        SPLITMIX64,
        SLOTS,
    ):
        op.get_bind().exec_driver_sql(statements)
