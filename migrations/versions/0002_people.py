"""Add people: users, members of workspaces, invitations, sign-in, sessions, and their tokens.

A user is no tenant's: `users`, `user_identities` and what is read before the user is known have
policies of their own. Secrets (sessions, links, codes) are stored as SHA-256.
"""

from alembic import op

revision = "0002_people"
down_revision = "0001_schema"
branch_labels = None
depends_on = None

LOCKS = {
    "experiments": "ACCESS EXCLUSIVE",
    "tokens": "ACCESS EXCLUSIVE",
    "workspaces": "SHARE ROW EXCLUSIVE",
}

USERS = """
-- One row per person. Distribution key: none (a reference table).
CREATE TABLE users (
    user_id text COLLATE "C" PRIMARY KEY,  -- 128 random bits in base62, 22 characters
    name text NOT NULL,  -- for people; may be empty
    email text NOT NULL,  -- as the person or the provider wrote it
    email_key text COLLATE "C",  -- case-folded; NULL: nobody has confirmed that it is theirs
    is_disabled boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX users_by_email ON users (email_key);

-- One row per account at an OpenID provider. Distribution key: none.
CREATE TABLE user_identities (
    issuer text COLLATE "C" NOT NULL,  -- `iss` and `sub` of the provider's ID tokens
    subject text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL REFERENCES users ON DELETE CASCADE,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (issuer, subject)
);
CREATE INDEX user_identities_by_user ON user_identities (user_id);

-- One row per person and workspace. Distribution key: none (a reference table).
CREATE TABLE members (
    workspace_id bigint NOT NULL REFERENCES workspaces ON DELETE CASCADE,
    user_id text COLLATE "C" NOT NULL REFERENCES users ON DELETE CASCADE,
    role text NOT NULL CHECK (role IN ('owner', 'editor', 'viewer')),
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace_id, user_id)
);
CREATE INDEX members_by_user ON members (user_id);

-- One row per link that invites to a workspace. Distribution key: none.
CREATE TABLE invitations (
    invitation_id text COLLATE "C" PRIMARY KEY,
    workspace_id bigint NOT NULL REFERENCES workspaces ON DELETE CASCADE,
    role text NOT NULL CHECK (role IN ('owner', 'editor', 'viewer')),
    email text NOT NULL,  -- '' for anyone who has the link
    digest bytea NOT NULL,  -- SHA-256 of the link's secret
    created_by text COLLATE "C" REFERENCES users ON DELETE SET NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    accepted_at timestamptz,
    accepted_by text COLLATE "C" REFERENCES users ON DELETE SET NULL,
    revoked_at timestamptz
);
CREATE UNIQUE INDEX invitations_by_digest ON invitations (digest);
CREATE INDEX invitations_by_workspace ON invitations (workspace_id, created_at DESC);
"""

SIGN_IN = """
-- One row per one-time link that signs a person in. Distribution key: none.
CREATE TABLE sign_in_links (
    digest bytea PRIMARY KEY,  -- SHA-256 of the link's secret
    user_id text COLLATE "C" NOT NULL REFERENCES users ON DELETE CASCADE,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    used_at timestamptz
);
CREATE INDEX sign_in_links_by_user ON sign_in_links (user_id);
CREATE INDEX sign_in_links_by_expiry ON sign_in_links (expires_at);

-- One row per sign-in that was sent to an OpenID provider and has not come back.
-- Distribution key: none.
CREATE TABLE sign_in_attempts (
    digest bytea PRIMARY KEY,  -- SHA-256 of `state`
    browser_digest bytea NOT NULL,  -- SHA-256 of the cookie of the browser that began it
    provider text NOT NULL,
    nonce text NOT NULL,
    code_verifier text NOT NULL,  -- RFC 7636 (PKCE)
    next_path text NOT NULL,  -- where to go afterwards, a path of this service
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL
);
CREATE INDEX sign_in_attempts_by_expiry ON sign_in_attempts (expires_at);

-- One row per browser that a person is signed in with. Distribution key: none.
CREATE TABLE browser_sessions (
    session_id text COLLATE "C" PRIMARY KEY,  -- shown to its owner; not the secret
    user_id text COLLATE "C" NOT NULL REFERENCES users ON DELETE CASCADE,
    digest bytea NOT NULL,  -- SHA-256 of the cookie
    user_agent text NOT NULL,
    address text NOT NULL,  -- of the client that signed in
    created_at timestamptz NOT NULL DEFAULT now(),
    last_used_at timestamptz NOT NULL DEFAULT now(),  -- written at most once a minute
    expires_at timestamptz NOT NULL  -- the absolute limit; the idle limit counts from last_used_at
);
CREATE UNIQUE INDEX browser_sessions_by_digest ON browser_sessions (digest);
CREATE INDEX browser_sessions_by_user ON browser_sessions (user_id);
CREATE INDEX browser_sessions_by_expiry ON browser_sessions (expires_at);

-- One row per `tbupload login` that a person approves in a browser (RFC 8628).
-- Distribution key: none.
CREATE TABLE device_logins (
    digest bytea PRIMARY KEY,  -- SHA-256 of the device code
    user_code text COLLATE "C" NOT NULL,  -- what the person types, without its hyphen
    client text NOT NULL,  -- what the command says of itself: program and host
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    user_id text COLLATE "C" REFERENCES users ON DELETE CASCADE,  -- of who approved or denied it
    workspace_id bigint REFERENCES workspaces ON DELETE CASCADE,  -- NULL with a user: denied
    scopes text[],
    label text,
    token_expires_at timestamptz,
    redeemed_at timestamptz
);
CREATE UNIQUE INDEX device_logins_by_user_code ON device_logins (user_code);
CREATE INDEX device_logins_by_user ON device_logins (user_id);
CREATE INDEX device_logins_by_expiry ON device_logins (expires_at);

ALTER TABLE tokens
    -- Whom it acts for, and with whose rights it ends; NULL: a machine, or who has a link.
    ADD COLUMN user_id text COLLATE "C" REFERENCES users ON DELETE CASCADE,
    -- Who created it; NULL: an administrator of the service.
    ADD COLUMN created_by text COLLATE "C" REFERENCES users ON DELETE SET NULL;
CREATE INDEX tokens_by_user ON tokens (user_id) WHERE user_id IS NOT NULL;
CREATE INDEX tokens_by_creator ON tokens (created_by) WHERE created_by IS NOT NULL;
-- Listing of the tokens of a workspace that are valid for all of its experiments.
CREATE INDEX tokens_by_workspace ON tokens (workspace_id, created_at DESC)
    WHERE experiment_id IS NULL;

-- Who created it, if a person did.
ALTER TABLE experiments ADD COLUMN created_by text COLLATE "C" REFERENCES users ON DELETE SET NULL;
CREATE INDEX experiments_by_creator ON experiments (created_by) WHERE created_by IS NOT NULL;
"""

# `users` has no policy, as `workspaces` has none: names of people are read where a member, an
# invitation or a token refers to them, all of which have policies.
POLICIES = """
CREATE FUNCTION current_user_id() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE AS
$$ SELECT nullif(current_setting('tbhub.user_id', true), '') $$;
-- The SHA-256 that a request proves to know the secret of.
CREATE FUNCTION current_secret_digest() RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE AS
$$ SELECT decode(nullif(current_setting('tbhub.secret_digest', true), ''), 'hex') $$;

DO $$
DECLARE name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['user_identities', 'members', 'invitations', 'sign_in_links',
                                'sign_in_attempts', 'browser_sessions', 'device_logins']
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
    END LOOP;

    -- Of a workspace.
    FOREACH name IN ARRAY ARRAY['members', 'invitations']
    LOOP
        EXECUTE format('CREATE POLICY tenant ON %I '
                       'USING (workspace_id = (SELECT current_workspace()))', name);
    END LOOP;

    -- Of a person, who may be a member of several workspaces.
    FOREACH name IN ARRAY ARRAY['user_identities', 'sign_in_links', 'browser_sessions',
                                'device_logins']
    LOOP
        EXECUTE format('CREATE POLICY own ON %I '
                       'USING (user_id = (SELECT current_user_id()))', name);
    END LOOP;

    -- Of those who know the secret.
    FOREACH name IN ARRAY ARRAY['sign_in_links', 'sign_in_attempts', 'browser_sessions',
                                'device_logins']
    LOOP
        EXECUTE format('CREATE POLICY known_by_digest ON %I '
                       'USING (digest = (SELECT current_secret_digest()))', name);
    END LOOP;

    -- What has expired is deleted by any request.
    FOREACH name IN ARRAY ARRAY['sign_in_links', 'sign_in_attempts', 'browser_sessions',
                                'device_logins']
    LOOP
        EXECUTE format('CREATE POLICY expired_seen ON %I FOR SELECT '
                       'USING (expires_at < now())', name);
        EXECUTE format('CREATE POLICY expired_deleted ON %I FOR DELETE '
                       'USING (expires_at < now())', name);
        -- For SELECT … FOR UPDATE; no update can pass its check.
        EXECUTE format('CREATE POLICY expired_locked ON %I FOR UPDATE '
                       'USING (expires_at < now()) WITH CHECK (false)', name);
    END LOOP;
END $$;

-- A sign-in finds the person of a provider's account by the exact pair.
CREATE POLICY known_by_subject ON user_identities FOR SELECT
    USING (issuer = (SELECT current_setting('tbhub.issuer', true))
        AND subject = (SELECT current_setting('tbhub.subject', true)));
-- A person who types a code sees the login that waits for it.
CREATE POLICY known_by_code ON device_logins
    USING (user_code = (SELECT current_setting('tbhub.user_code', true)));
-- Who has the link of an invitation sees it, and then works in its workspace.
CREATE POLICY known_by_digest ON invitations FOR SELECT
    USING (digest = (SELECT current_secret_digest()));

-- A person sees all their memberships, and so does a request with a session of theirs, which knows
-- its person only afterwards. To change one is for transactions of the workspace.
CREATE POLICY own ON members FOR SELECT USING (user_id = (SELECT current_user_id()));
CREATE POLICY known_by_session ON members FOR SELECT
    USING (user_id = (SELECT s.user_id FROM browser_sessions AS s
                      WHERE s.digest = (SELECT current_secret_digest())));

-- The tokens of a person in all workspaces: seen and revoked, not created.
CREATE POLICY own ON tokens FOR SELECT USING (user_id = (SELECT current_user_id()));
CREATE POLICY own_revoked ON tokens FOR UPDATE USING (user_id = (SELECT current_user_id()));
"""


def upgrade() -> None:
    """Create the tables of people and their policies."""
    for statements in (USERS, SIGN_IN, POLICIES):
        op.get_bind().exec_driver_sql(statements)
