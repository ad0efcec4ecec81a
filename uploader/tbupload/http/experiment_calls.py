"""The calls of the API on experiments and their tokens."""

from __future__ import annotations

import hashlib
import urllib.parse
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from tbupload.errors import Refused
from tbupload.http.api_schemas import (
    ATTEMPTS,
    CONSOLE,
    DELETED,
    DELETED_RUNS,
    EXPERIMENT,
    EXPERIMENTS,
    TOKENS,
    UPLOADS,
)
from tbupload.http.http_errors import UNKNOWN_ROUTE_STATUSES
from tbupload.http.json_calls import JsonCalls, experiment_path
from tbupload.http.response_schema import Json
from tbupload.http.share_links import ShareLinks

PAGE_ITEMS: Final = 100
"""Experiments on a page of their listing."""

LONG_PAGE_ITEMS: Final = 201
"""Experiments on a page if no more are needed."""

RUNS_PER_REQUEST_MAX: Final = 100
"""Runs in a request that deletes runs; the server accepts no more."""

RUNS_TAGGED_MAX: Final = 1_000
"""Runs in a request that tags runs; the server accepts no more."""

QUERY_BYTES: Final = 8_000
"""Length of a query, about: a server takes 48 KiB, proxies before it less."""

CREATED: Final = 201  # RFC 9110, section 15.3.2


class ExperimentCalls(JsonCalls):
    """The part of `Client` that needs no messages of the upload."""

    @property
    def server(self) -> str:
        """Return the server's address."""
        return self._transport.server

    def create_experiment(
        self,
        *,
        name: str,
        description: str,
        visibility: str,
        request_key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Json:
        """Create an experiment and return its fields: {experiment_id, url, name, ...}.

        `metadata` has further fields: tags, notes, properties, origin.

        Idempotent for a `request_key`: another call with it, also by another process, returns the
        experiment of the first one.
        """
        fields = {"name": name, "description": description, "visibility": visibility}
        return self._json(
            "POST",
            "/api/v1/experiments",
            {**fields, **(metadata or {})},
            {"Idempotency-Key": request_key or str(uuid.uuid4())},
        ).json(EXPERIMENT)

    def get_or_create_experiment(
        self,
        *,
        name: str,
        description: str,
        visibility: str,
        metadata: Mapping[str, Any] | None = None,
    ) -> tuple[Json, bool]:
        """Return the fields of the experiment of this name, and whether it was created now.

        An existing one is unchanged. If several clients call it at the same time, one creates it.

        Raises:
            Conflict: Several experiments have the name.
        """
        fields = {"name": name, "description": description, "visibility": visibility}
        answer = self._json(
            "POST", "/api/v1/experiments", {**fields, **(metadata or {}), "unique_name": True}
        )
        return answer.json(EXPERIMENT), answer.status == CREATED

    def get_experiment(self, experiment_id: str, *, has_details: bool = False) -> Json:
        """Return the experiment's fields; with `has_details` also author, and number of series."""
        query = "?details=true" if has_details else ""
        path = f"{experiment_path(experiment_id)}{query}"
        return self._transport.request("GET", path).json(EXPERIMENT)

    def list_experiments(
        self,
        query: str | None = None,
        *,
        count_max: int | None = None,
        items: int = PAGE_ITEMS,
        selection: Mapping[str, str | Sequence[str]] | None = None,
    ) -> Iterator[Json]:
        """Yield the experiments of the token's workspace, newest first.

        Args:
            query: Selects those with words that begin like its words.
            count_max: How many are needed; then they have details, as of `get_experiment`.
            items: Experiments on a page, if it is not known how many are needed.
            selection: Further fields of the query: tag, status, starred, archived, sort, reverse.
        """
        fields = {**({} if query is None else {"q": query}), **(selection or {})}
        page_items = items
        if count_max is not None:
            fields["details"] = "true"
            page_items = count_max if count_max <= LONG_PAGE_ITEMS else PAGE_ITEMS
        for page in self._get_pages(
            "/api/v1/experiments", {**fields, "limit": str(page_items)}, EXPERIMENTS
        ):
            yield from page["experiments"]

    def update_experiment(self, experiment_id: str, fields: Mapping[str, Any]) -> Json:
        """Change the given ones of name, tags and so on; return all fields."""
        return self._json("PATCH", experiment_path(experiment_id), fields).json(EXPERIMENT)

    def delete_experiment(
        self, experiment_id: str, *, is_final: bool = False, keeps_frozen_links: bool = False
    ) -> None:
        """Delete an experiment with all its data; with `is_final` it cannot be restored.

        With `keeps_frozen_links`, the copies that these show stay.
        """
        options = {"final": is_final, "keep_frozen_links": keeps_frozen_links}
        chosen = "&".join(f"{name}=true" for name, is_chosen in options.items() if is_chosen)
        query = f"?{chosen}" if chosen else ""
        self._transport.request("DELETE", f"{experiment_path(experiment_id)}{query}")

    def count_frozen_links(self, experiment_id: str) -> int:
        """Return the number of links that show a frozen copy of it."""
        links = ShareLinks(self._transport, experiment_id).list()
        return sum(link["frozen"] and link["revoked_at"] is None for link in links)

    def list_attempts(self, experiment_id: str) -> list[Json]:
        """Return {run, attempts: [{attempt, started_at, superseded_points}]} of restarted runs.

        None of a server that does not keep attempts.
        """
        try:
            answer = self._transport.request("GET", experiment_path(experiment_id, "attempts"))
        except Refused as refusal:
            if refusal.status not in UNKNOWN_ROUTE_STATUSES:
                raise
            return []
        runs: list[Json] = answer.json(ATTEMPTS)["runs"]
        return runs

    def delete_runs(self, experiment_id: str, runs: Sequence[str]) -> None:
        """Delete runs with all their data, at once and for good. Idempotent.

        Raises Refused (404) if one does not exist, and never has.
        """
        self._delete_named(experiment_path(experiment_id, "runs"), runs)

    def tag_runs(
        self,
        experiment_id: str,
        runs: Sequence[str],
        add: Sequence[str],
        remove: Sequence[str] = (),
    ) -> None:
        """Add tags to runs, and remove some. Idempotent.

        Raises Refused (404) if one does not exist, (422) for what is no tag.
        """
        for start in range(0, len(runs), RUNS_TAGGED_MAX):
            named = runs[start : start + RUNS_TAGGED_MAX]
            fields = {"runs": named, "add": add, "remove": remove}
            self._json("PATCH", experiment_path(experiment_id, "runs"), fields)

    def allow_deleted_runs(self, experiment_id: str, runs: Sequence[str]) -> None:
        """Let deleted runs be uploaded again. Idempotent."""
        self._delete_named(experiment_path(experiment_id, "runs", "deleted"), runs)

    def find_deleted_runs(self, experiment_id: str, runs: Iterable[str]) -> list[str]:
        """Return the runs that were deleted from the experiment, in order of their names.

        None of a server that does not know.
        """
        by_hash = {hashlib.sha256(run.encode()).hexdigest(): run for run in runs}
        path = experiment_path(experiment_id, "runs", "deleted")
        try:
            pages = list(self._get_pages(path, {}, DELETED_RUNS))
        except Refused as refusal:
            if refusal.status not in UNKNOWN_ROUTE_STATUSES:
                raise
            return []
        hashes = (run["name_sha256"] for page in pages for run in page["runs"])
        return sorted(by_hash[each] for each in hashes if each in by_hash)

    def _delete_named(self, path: str, runs: Sequence[str]) -> None:
        names: list[str] = []
        for index, name in enumerate(runs):
            names.append(urllib.parse.urlencode({"run": name}))
            is_full = len(names) == RUNS_PER_REQUEST_MAX or sum(map(len, names)) > QUERY_BYTES
            if is_full or index == len(runs) - 1:
                self._transport.request("DELETE", f"{path}?{'&'.join(names)}")
                names = []

    def restore_experiment(self, experiment_id: str) -> Json:
        """Undo the deletion of an experiment; return its fields."""
        return self._json("POST", experiment_path(experiment_id, "restore"), {}).json(EXPERIMENT)

    def list_deleted(self) -> Iterator[Json]:
        """Yield the deleted experiments that can be restored, the last deleted first."""
        path = "/api/v1/experiments/deleted"
        for page in self._get_pages(path, {"limit": str(PAGE_ITEMS)}, DELETED):
            yield from page["experiments"]

    def put_upload(self, experiment_id: str, upload_id: str, fields: Mapping[str, Any]) -> None:
        """Record an upload: {origin, packages, status_of, started_at}. Idempotent."""
        self._json("PUT", experiment_path(experiment_id, "uploads", upload_id), fields)

    def change_upload(self, experiment_id: str, upload_id: str, fields: Mapping[str, Any]) -> None:
        """Say how a recorded upload ended, or with no fields that its uploader is there."""
        self._json("PATCH", experiment_path(experiment_id, "uploads", upload_id), fields)

    def list_uploads(self, experiment_id: str) -> Iterator[Json]:
        """Yield the recorded uploads of an experiment, newest first."""
        for page in self._get_pages(experiment_path(experiment_id, "uploads"), {}, UPLOADS):
            yield from page["uploads"]

    def read_console(self, experiment_id: str, upload_id: str) -> list[Json]:
        """Return the recorded lines of a console: {text, time, run, step}."""
        path = experiment_path(experiment_id, "uploads", upload_id, "console")
        lines: list[Json] = self._transport.request("GET", path).json(CONSOLE)["lines"]
        return lines

    def list_tokens(self, experiment_id: str) -> list[Json]:
        """Return the experiment's tokens, without their secrets."""
        pages = self._get_pages(experiment_path(experiment_id, "tokens"), {}, TOKENS)
        return [token for page in pages for token in page["tokens"]]

    def revoke_token(self, experiment_id: str, token_id: str) -> None:
        """Revoke a token, at once."""
        self._transport.request("DELETE", experiment_path(experiment_id, "tokens", token_id))
