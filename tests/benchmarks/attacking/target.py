"""Knowledge of an attacker about the service, and the requests it sends, as bytes made once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Self

ADDRESSES = tuple(f"127.0.0.{number}" for number in range(2, 52))
"""The addresses attackers come from, most of them from the first: the victim's is 127.0.0.1."""


@dataclass(frozen=True)
class Target:
    """The service's port, the attacker's tokens and the ids of its experiments by name, all of
    visibility `link`.

    `token` is the owner's, or empty for an anonymous caller, who still may send batches with
    `append_token`; `workspace_tokens` are of workspaces that one person has created,
    `invited_tokens` those of accounts that one member has invited. `scale` multiplies counts of
    requests.
    """

    host: str
    port: int
    token: str
    append_token: str
    experiments: Mapping[str, str] = field(default_factory=dict)
    scale: float = 1.0
    workspace_tokens: Sequence[str] = ()
    invited_tokens: Sequence[str] = ()
    grpc_port: int = 0

    def to_json(self) -> str:
        """Serialize for an attacker's standard input."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse what `to_json` wrote."""
        return cls(**json.loads(text))

    def times(self, count: int) -> int:
        """Return `count` scaled, at least 1."""
        return max(1, round(count * self.scale))

    def data(self, experiment: str, path: str) -> bytes:
        """Build a GET below `/api/v1/experiments/<id>/`."""
        return self.ask("GET", f"/api/v1/experiments/{self.experiments[experiment]}/{path}")

    def page(self, experiment: str, path: str) -> bytes:
        """Build a GET below the experiment's page."""
        return self.ask("GET", f"/experiment/{self.experiments[experiment]}/{path}")

    def ask(self, method: str, path: str, body: bytes = b"", missing_bytes: int = 0) -> bytes:
        """Build a request of this caller, anonymous or not."""
        return http_request(method, path, token=self.token, body=body, missing_bytes=missing_bytes)


def http_request(
    method: str,
    path: str,
    *,
    token: str = "",
    body: bytes = b"",
    missing_bytes: int = 0,
    content_type: str = "application/json",
    encoding: str = "",
) -> bytes:
    """Build an HTTP/1.1 request whose connection ends with its answer.

    `missing_bytes` are announced in `Content-Length` beyond the body, so the request never becomes
    whole.
    """
    lines = [f"{method} {path} HTTP/1.1", "Host: x", "Connection: close"]
    if token:
        lines.append(f"Authorization: Bearer {token}")
    if body:
        lines += [f"Content-Type: {content_type}", f"Content-Length: {len(body) + missing_bytes}"]
    if encoding:
        lines.append(f"Content-Encoding: {encoding}")
    return "\r\n".join([*lines, "", ""]).encode() + body
