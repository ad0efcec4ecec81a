"""The first schema: workspaces, tokens, experiments and their series, points, blobs and cursors."""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# The ladder of the draw: rank 15 is everything, each rank below it half of the one above, rank 0 the finest draw. With
# this seed a freshly made table has 2 slots of rank 0, as many as expected; others gave 1 to 5, or none.
SAMPLE_SEED = 42
RANKS = 16

TABLES = """
CREATE TABLE workspaces (
    workspace_id bigserial PRIMARY KEY,
    name text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE experiments (
    experiment_id text COLLATE "C" PRIMARY KEY,
    workspace_id bigint NOT NULL REFERENCES workspaces,
    name text NOT NULL,
    description text NOT NULL,
    visibility text NOT NULL CHECK (visibility IN ('private', 'link')),
    request_key text,
    version bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);
CREATE INDEX experiments_by_age ON experiments (workspace_id, created_at DESC, experiment_id);
CREATE INDEX experiments_by_request ON experiments (workspace_id, request_key) WHERE request_key IS NOT NULL;

CREATE TABLE tokens (
    token_id text COLLATE "C" PRIMARY KEY,
    workspace_id bigint NOT NULL REFERENCES workspaces,
    experiment_id text COLLATE "C" REFERENCES experiments ON DELETE CASCADE,
    scopes text[] NOT NULL,
    label text NOT NULL,
    prefix text NOT NULL,
    digest bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    revoked_at timestamptz,
    last_used_at timestamptz
);
CREATE UNIQUE INDEX tokens_by_digest ON tokens (digest);
CREATE INDEX tokens_by_experiment ON tokens (experiment_id);

CREATE TABLE runs (
    experiment_id text COLLATE "C" NOT NULL REFERENCES experiments ON DELETE CASCADE,
    run_id bigserial,
    workspace_id bigint NOT NULL,
    name text NOT NULL,
    name_digest bytea NOT NULL,
    start_time float8,
    PRIMARY KEY (experiment_id, run_id),
    CONSTRAINT runs_by_name UNIQUE (experiment_id, name_digest)
);

CREATE TABLE tags (
    experiment_id text COLLATE "C" NOT NULL REFERENCES experiments ON DELETE CASCADE,
    tag_id bigserial,
    workspace_id bigint NOT NULL,
    name text NOT NULL,
    name_digest bytea NOT NULL,
    PRIMARY KEY (experiment_id, tag_id),
    CONSTRAINT tags_by_name UNIQUE (experiment_id, name_digest)
);

CREATE TABLE time_series (
    experiment_id text COLLATE "C" NOT NULL REFERENCES experiments ON DELETE CASCADE,
    series_id bigserial,
    workspace_id bigint NOT NULL,
    run_id bigint NOT NULL,
    tag_id bigint NOT NULL,
    plugin text NOT NULL,
    data_class smallint NOT NULL CHECK (data_class IN (1, 2, 3)),
    summary_metadata bytea NOT NULL,
    metadata_wall_time float8 NOT NULL,
    count bigint NOT NULL DEFAULT 0,
    count_is_exact boolean NOT NULL DEFAULT true,
    sealed_count bigint NOT NULL DEFAULT 0,  -- points in level 0
    tail_rows integer NOT NULL DEFAULT 0,
    tail_points bigint NOT NULL DEFAULT 0,
    max_length integer NOT NULL DEFAULT 0,
    first_step bigint NOT NULL,
    first_wall_time float8 NOT NULL,
    first_value float8,
    last_step bigint NOT NULL,
    last_wall_time float8 NOT NULL,
    last_value float8,
    PRIMARY KEY (experiment_id, series_id),
    CONSTRAINT time_series_by_name UNIQUE (experiment_id, run_id, tag_id)
) WITH (fillfactor = 60);

-- Points carry no foreign key to their series: the check costs 60-80 % of the insert. Who deletes a series deletes its.
CREATE TABLE scalar_tail (
    experiment_id text COLLATE "C" NOT NULL,
    series_id bigint NOT NULL,
    block_id bigserial,
    workspace_id bigint NOT NULL,
    count integer NOT NULL,
    is_packed boolean NOT NULL,
    data bytea STORAGE EXTERNAL NOT NULL,
    PRIMARY KEY (experiment_id, series_id, block_id)
);

-- Level 0: sealed blocks in step order. Levels 1 to 5: thinned copies of them. Level -1: blocks that are still open.
CREATE TABLE scalar_blocks (
    experiment_id text COLLATE "C" NOT NULL,
    series_id bigint NOT NULL,
    level smallint NOT NULL,
    block_id bigserial,
    workspace_id bigint NOT NULL,
    count integer NOT NULL,
    first_step bigint NOT NULL,
    last_step bigint NOT NULL,
    data bytea STORAGE EXTERNAL NOT NULL,
    PRIMARY KEY (experiment_id, series_id, level, block_id)
);

-- (rank, sample_key) is the order to sample by and depends on the step alone, so the key allows one point a step.
CREATE TABLE tensor_points (
    experiment_id text COLLATE "C" NOT NULL,
    series_id bigint NOT NULL,
    rank smallint NOT NULL,
    sample_key bigint NOT NULL,
    workspace_id bigint NOT NULL,
    step bigint NOT NULL,
    wall_time float8 NOT NULL,
    dtype smallint NOT NULL,
    shape bigint[] NOT NULL,
    data bytea NOT NULL,
    histogram bytea,
    PRIMARY KEY (experiment_id, series_id, rank, sample_key)
);

CREATE TABLE blob_points (
    experiment_id text COLLATE "C" NOT NULL,
    series_id bigint NOT NULL,
    rank smallint NOT NULL,
    sample_key bigint NOT NULL,
    workspace_id bigint NOT NULL,
    step bigint NOT NULL,
    wall_time float8 NOT NULL,
    digests bytea[] NOT NULL,
    PRIMARY KEY (experiment_id, series_id, rank, sample_key)
);

CREATE TABLE blobs (
    workspace_id bigint NOT NULL REFERENCES workspaces,
    sha256 bytea NOT NULL,
    size bigint NOT NULL,
    content_type text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace_id, sha256)
);

CREATE TABLE upload_streams (
    experiment_id text COLLATE "C" NOT NULL REFERENCES experiments ON DELETE CASCADE,
    stream_digest bytea NOT NULL,
    workspace_id bigint NOT NULL,
    run_id bigint NOT NULL,
    file_name text NOT NULL,
    first_record_digest bytea NOT NULL,
    generation integer NOT NULL,
    filters_digest bytea NOT NULL,
    cursor bigint NOT NULL,
    checksum bigint NOT NULL,
    skipped jsonb NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (experiment_id, stream_digest)
) WITH (fillfactor = 60);

CREATE TABLE sample_slots (
    slot integer PRIMARY KEY,
    rank smallint NOT NULL
);
"""

# A second lock behind the grants: a connection sees one tenant's rows, the one named in its transaction. Two rows
# must be found before the tenant is known: an experiment by its id (128 random bits) and a token by its digest.
POLICIES = """
CREATE FUNCTION current_workspace() RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE AS
$$ SELECT nullif(current_setting('tbhub.workspace_id', true), '')::bigint $$;

DO $$
DECLARE name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['experiments', 'tokens', 'runs', 'tags', 'time_series', 'scalar_tail', 'scalar_blocks',
                                'tensor_points', 'blob_points', 'blobs', 'upload_streams']
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY tenant ON %I USING (workspace_id = (SELECT current_workspace()))', name);
    END LOOP;
END $$;

CREATE POLICY known_by_id ON experiments FOR SELECT
    USING (experiment_id = (SELECT current_setting('tbhub.experiment_id', true)));
CREATE POLICY known_by_digest ON tokens FOR SELECT
    USING (digest = decode((SELECT current_setting('tbhub.token_digest', true)), 'hex'));
"""

# The top 16 bits of splitmix64, as in tbservice/sample_order.py: PostgreSQL has no unsigned integers, hence numeric.
SPLITMIX64 = """
CREATE FUNCTION sample_slot(step bigint) RETURNS integer LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
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

# Each slot's rank is the finest draw it survives. With one seed the draws of one table are nested.
DRAW = f"""
INSERT INTO sample_slots (slot, rank) SELECT slot, {RANKS - 1} FROM generate_series(0, 65535) AS slot;

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
    """Creates everything, then draws the ranks of the sample slots."""
    for statements in (TABLES, POLICIES, SPLITMIX64, DRAW):
        op.get_bind().exec_driver_sql(statements)
