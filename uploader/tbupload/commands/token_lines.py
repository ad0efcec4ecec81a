"""How a token is printed: the same of an experiment, a person and a workspace."""

from __future__ import annotations

from typing import Any

from tbupload.commands.experiment_text import SECONDS_FORM, time_text
from tbupload.console.output import print_result


def print_token(token: dict[str, Any], *, is_json: bool) -> None:
    """Print a token's id, scopes, beginning, expiry and label, or all of it as JSON."""
    state = "revoked" if token["revoked_at"] else expiry_text(token["expires_at"])
    columns = (token["id"], ",".join(token["scopes"]), f"{token['prefix']}…", state, token["label"])
    print_result(token, "  ".join(columns), is_json=is_json)


def expiry_text(expires_at: str | None) -> str:
    """Return when a token or a link expires, to the second; None is never."""
    return f"expires {time_text(expires_at, SECONDS_FORM) if expires_at else 'never'}"
