"""The server's API about who one is: logins in a browser, the person, and their tokens."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tbupload.http.api_schemas import BEGUN_LOGIN, LOGIN_STATE, ME, NEW_TOKEN, TOKENS, USAGE
from tbupload.http.json_calls import JsonCalls
from tbupload.http.response_schema import Json
from tbupload.http.transport import Response

_MINE: Final = "/api/v1/me/tokens"


class AccountClient(JsonCalls):
    """Calls the API of one server; every method raises as `Transport.request` does."""

    def begin_login(self, client: str) -> Json:
        """Begin a login: {device_code, user_code, verification_uri, expires_in, interval}.

        `client` is what the person who approves it is told.
        """
        return self._post("/api/v1/device-logins", {"client": client}).json(BEGUN_LOGIN)

    def ask_for_token(self, device_code: str) -> Json:
        """Return {status: "pending"}, or {status: "approved", token, ...} once."""
        fields = {"device_code": device_code}
        return self._post("/api/v1/device-logins/token", fields).json(LOGIN_STATE)

    def get_me(self) -> Json:
        """Return whom the token acts for: {person, token, workspace, workspaces}."""
        return self._transport.request("GET", "/api/v1/me").json(ME)

    def get_limits(self, workspace_id: int) -> Json:
        """Return {used, limit, remaining} of what a workspace may store, by name."""
        path = f"/api/v1/workspaces/{workspace_id}/usage"
        limits: Json = self._transport.request("GET", path).json(USAGE)["limits"]
        return limits

    def revoke_this_token(self) -> None:
        """Revoke the token that these requests are made with."""
        self._transport.request("DELETE", "/api/v1/me/token")

    def list_tokens(self, workspace_id: int | None) -> Iterator[Json]:
        """Yield the person's tokens, or those of a workspace, which machines use."""
        for page in self._get_pages(_tokens_path(workspace_id), {}, TOKENS):
            yield from page["tokens"]

    def create_token(self, workspace_id: int | None, fields: Mapping[str, Any]) -> Json:
        """Create a token from {scopes, label?, expires_at?}; its secret is in this answer only."""
        return self._post(_tokens_path(workspace_id), fields).json(NEW_TOKEN)

    def revoke_token(self, workspace_id: int | None, token_id: str) -> None:
        """Revoke a token, at once."""
        quoted = urllib.parse.quote(token_id, safe="")
        self._transport.request("DELETE", f"{_tokens_path(workspace_id)}/{quoted}")

    def _post(self, path: str, fields: Mapping[str, Any]) -> Response:
        """Send a request that is not repeated if it may have been processed."""
        return self._json("POST", path, fields, may_retry=False)


def _tokens_path(workspace_id: int | None) -> str:
    return _MINE if workspace_id is None else f"/api/v1/workspaces/{workspace_id}/tokens"
