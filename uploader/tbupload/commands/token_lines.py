"""How a token is printed: the same of an experiment, a person and a workspace."""

from __future__ import annotations

from typing import Any

from tbupload.console.output import print_json, print_line


def print_token(token: dict[str, Any], *, is_json: bool) -> None:
    """Print a token's id, scopes, beginning, expiry and label, or all of it as JSON."""
    if is_json:
        print_json(token)
        return
    state = "revoked" if token["revoked_at"] else f"expires {token['expires_at'] or 'never'}"
    print_line(
        "  ".join(
            (token["id"], ",".join(token["scopes"]), f"{token['prefix']}…", state, token["label"])
        )
    )
