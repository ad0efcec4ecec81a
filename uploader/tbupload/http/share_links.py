"""The calls of the server's HTTP API on the share links of an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tbupload.http.json_calls import JsonCalls, experiment_path
from tbupload.http.response_schema import (
    Json,
    array,
    boolean,
    nullable,
    plain,
    record,
    string,
)
from tbupload.http.transport import Transport

_LINK_FIELDS: Final = {
    "id": string,
    **dict.fromkeys(("label", "prefix", "created_at"), string),
    **dict.fromkeys(("runs", "tags", "expires_at", "revoked_at", "last_used_at"), nullable(string)),
    **dict.fromkeys(("anonymous", "frozen"), boolean),
}
_LINK: Final = record(_LINK_FIELDS, rest=plain)
_NEW_LINK: Final = record({**_LINK_FIELDS, "url": string, "token": string}, rest=plain)
_LINKS: Final = record({"links": array(_LINK)})


class ShareLinks(JsonCalls):
    """The share links of one experiment.

    Every method raises Unreachable and Refused as `Transport.request` does.
    """

    def __init__(self, transport: Transport, experiment_id: str) -> None:
        super().__init__(transport)
        self._experiment_id = experiment_id
        self._path = experiment_path(experiment_id, "links")

    def create(self, fields: Mapping[str, Any]) -> Json:
        """Create a link from {label?, expires_at?, runs?, tags?, anonymous?, frozen?}.

        Its secret is in this answer only. A request that may have been processed is not repeated.
        """
        return self._json("POST", self._path, fields, may_retry=False).json(_NEW_LINK)

    def list(self) -> list[Json]:
        """Return the links, newest first, without their secrets."""
        pages = self._get_pages(self._path, {}, _LINKS)
        return [link for page in pages for link in page["links"]]

    def rename(self, link_id: str, label: str) -> Json:
        """Change the label of a link; return its fields."""
        return self._json("PATCH", self._link(link_id), {"label": label}).json(_LINK)

    def revoke(self, link_id: str) -> None:
        """Revoke a link, at once; the data of a frozen one are deleted."""
        self._transport.request("DELETE", self._link(link_id))

    def _link(self, link_id: str) -> str:
        return experiment_path(self._experiment_id, "links", link_id)
