"""Queries on `sign_in_attempts`: sign-ins that were sent to an OpenID provider."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Connection, text

from tbservice.auth.tables import network_counts
from tbservice.db.pipeline import query_with_rls


@dataclass(frozen=True, slots=True)
class SignInAttempt:
    """A sign-in that waits for the provider's redirect. `next_path` is where it goes afterwards."""

    provider: str
    nonce: str
    code_verifier: str
    next_path: str


def count_waiting(db: Connection, network: str) -> tuple[int, int]:
    """Return how many attempts wait for the provider: begun from this network, and in all."""
    return network_counts.count_waiting(db, "sign_in_attempts", network)


def create(
    db: Connection,
    digest: bytes,
    browser_digest: bytes,
    attempt: SignInAttempt,
    network: str,
    lifetime: timedelta,
) -> None:
    """Insert an attempt.

    Args:
        db: A transaction of no workspace.
        digest: SHA-256 of its `state`.
        browser_digest: SHA-256 of the cookie of the browser that began it.
        attempt: The attempt.
        network: From which network it was begun.
        lifetime: After it, the attempt is as if it had never been.
    """
    column, value = network_counts.find_column(db, "sign_in_attempts")
    query_with_rls(
        db,
        {"secret_digest": digest.hex()},
        f"""
            INSERT INTO sign_in_attempts (digest, browser_digest, provider, nonce, code_verifier,
                next_path, expires_at{column})
            VALUES (%(digest)s, %(browser_digest)s, %(provider)s, %(nonce)s, %(code_verifier)s,
                %(next_path)s, now() + %(lifetime)s{value})
            RETURNING digest
        """,  # noqa: S608 - constants above
        {
            "digest": digest,
            "browser_digest": browser_digest,
            "provider": attempt.provider,
            "nonce": attempt.nonce,
            "code_verifier": attempt.code_verifier,
            "next_path": attempt.next_path,
            "network": network,
            "lifetime": lifetime,
        },
    )


def take(db: Connection, digest: bytes, browser_digest: bytes) -> SignInAttempt | None:
    """Delete and return an attempt of this browser that has not expired; None if there is none.

    Only the first of several requests with one `state` gets it. Another browser's stays.
    """
    rows = query_with_rls(
        db,
        {"secret_digest": digest.hex()},
        """
            DELETE FROM sign_in_attempts
            WHERE digest = %(digest)s AND browser_digest = %(browser_digest)s
                AND expires_at > now()
            RETURNING provider, nonce, code_verifier, next_path
        """,
        {"digest": digest, "browser_digest": browser_digest},
    )
    return SignInAttempt(*rows[0]) if rows else None


def delete_expired(db: Connection, limit: int) -> None:
    """Delete at most `limit` expired attempts, oldest first."""
    statement = text("""
        DELETE FROM sign_in_attempts WHERE digest = ANY (ARRAY(
            SELECT digest FROM sign_in_attempts WHERE expires_at < now()
            ORDER BY expires_at LIMIT :limit))
    """)
    db.execute(statement, {"limit": limit})
