"""Details that an experiment has besides points: carried to the copy, and compared there."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import Any, Final

from tbupload.commands.moving.workspaces import MoveWorkspace
from tbupload.http.response_schema import Json
from tbupload.http.run_table import RunTableCalls

FIELDS: Final = ("name", "description", "tags", "notes", "properties", "origin")
"""Fields of an experiment that its copy has as well; also `archived` and `expires_at`."""

_TEXTS: Final = ("console", "git_diff")
"""Texts of an upload's origin that have several lines, and are sent apart."""

_ENDED: Final = frozenset({"finished", "failed", "killed"})


def read_fields(experiment: Json) -> dict[str, Any]:
    """Return the fields to carry. `archived` is False for a server that has no archive."""
    fields = {name: experiment[name] for name in FIELDS}
    fields["archived"] = experiment.get("archived", False)
    if experiment.get("expires_at") is not None:
        fields["expires_at"] = experiment["expires_at"]
    return fields


def carry_uploads(
    source: MoveWorkspace, source_id: str, target: MoveWorkspace, target_id: str
) -> int:
    """Record the uploads of an experiment at its copy, the oldest first; return how many.

    Idempotent. One that did not say how it ended is "unknown" there.
    """
    uploads = list(source.client.list_uploads(source_id))
    for upload in reversed(uploads):
        upload_id = upload["upload_id"]
        origin = {name: text for name, text in upload["origin"].items() if name not in _TEXTS}
        kept = ("packages", "status_of", "started_at")
        fields = {"origin": origin, **{name: upload[name] for name in kept}}
        target.client.put_upload(target_id, upload_id, fields)
        end: dict[str, Any] = {"status": "unknown", "ended_at": upload["ended_at"]}
        if upload["status"] in _ENDED:
            end |= {"status": upload["status"], "detail": upload["detail"]}
        end |= {name: upload["origin"][name] for name in _TEXTS if name in upload["origin"]}
        if "console" in end:
            times = [each["time"] for each in source.client.read_console(source_id, upload_id)]
            end["console_times"] = list(map(_epoch, times)) if all(times) else []
        target.client.change_upload(target_id, upload_id, end)
    return len(uploads)


def read_run_tags(workspace: MoveWorkspace, experiment_id: str) -> dict[str, tuple[str, ...]]:
    """Return the tags of each run that has some of its own, besides those of the experiment."""
    experiment = workspace.client.get_experiment(experiment_id)
    shared = {tag.casefold() for tag in experiment["tags"]}
    calls = RunTableCalls(workspace.transport, workspace.workspace_id)
    where = f'experiment = "{experiment_id}" and tags is not missing'
    tags_of: dict[str, tuple[str, ...]] = {}
    for page in calls.read_pages(where, columns=["run", "tags"]):
        for row in page["runs"]:
            tags = [tag for tag in row["tags"].split("\n") if tag.casefold() not in shared]
            if tags:
                tags_of[row["run"]] = tuple(tags)
    return tags_of


def carry_run_tags(
    target: MoveWorkspace, target_id: str, tags_of: dict[str, tuple[str, ...]]
) -> None:
    """Tag the runs of a copy as those of the experiment are. Idempotent."""
    runs: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    for run, tags in tags_of.items():
        runs[tags].append(run)
    for tags, names in runs.items():
        target.client.tag_runs(target_id, names, tags)


def _epoch(time: str) -> float:
    """Return a time of the API in seconds; Python before 3.11 knows no "Z"."""
    return datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()
