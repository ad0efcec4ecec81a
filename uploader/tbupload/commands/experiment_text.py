"""Experiments as text for people: a line of a list, or all fields of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, Final

from tbupload.console.columns import Column, ColumnLayout
from tbupload.console.output import print_line
from tbupload.console.texts import count_text, counted, size_text, wall_time_text

RESTARTED_RUNS_SHOWN: Final = 20
"""Runs whose attempts are listed, at most; `--json` has all."""

_FIRST_FIELDS: Final = (
    "experiment_id",
    "url",
    "name",
    "author",
    "created_at",
    "updated_at",
    "data_at",
    "expires_at",
    "status",
    "visibility",
    "tags",
    "runs",
    "series",
    "points",
    "size",
    "description",
    "notes",
)
"""The order of the fields of one experiment; others follow."""

_TIMES: Final = ("created_at", "updated_at", "data_at", "deleted_at", "erase_at", "expires_at")

SECONDS_FORM: Final = "%Y-%m-%d %H:%M:%S %Z"
"""Format of a time to the second, with the zone (strftime)."""

EXPIRING_DAYS: Final = 7
"""Days before an experiment expires from which lists say so."""

_STATUS_COLORS: Final = {
    "running": "36",  # cyan
    "finished": "32",  # green
    "failed": "31",  # red
    "killed": "31",
    "silent": "33",  # yellow
}
"""Colors of statuses: parameters of SGR (ECMA-48)."""

_PRIORITIES: Final = ("status", "points", "size", "author", "runs", "series")


def make_layout(
    total_columns: int | None, sort: str | None = None, *, is_colored: bool = False
) -> ColumnLayout:
    """Return the columns of a list of experiments for a terminal of this width, None for none.

    The time is that of the last data where that is the order.
    """
    zone = datetime.now().astimezone().tzname() or "local"
    key = "updated" if sort == "updated" else "created"
    columns = (
        Column("id", "ID", 22),
        Column(key, f"{key.upper()} ({zone})"[:19], max(16, min(len(zone) + 10, 19))),
        Column("status", "STATUS", 8, colors=_STATUS_COLORS if is_colored else {}),
        Column("runs", "RUNS", 6, is_right=True),
        Column("series", "SERIES", 7, is_right=True),
        Column("points", "POINTS", 7, is_right=True),
        Column("size", "SIZE", 9, is_right=True),
        Column("author", "AUTHOR", 14),
        Column("name", "NAME", 0),
    )
    return ColumnLayout(columns, (key, *_PRIORITIES), total_columns)


def list_cells(experiment: Mapping[str, Any]) -> dict[str, str]:
    """Return the cells of a list's line."""
    fields = _flatten_details(experiment)
    return {
        "id": str(fields["experiment_id"]),
        "created": time_text(fields["created_at"], "%Y-%m-%d %H:%M"),
        "updated": time_text(fields.get("data_at") or "", "%Y-%m-%d %H:%M"),
        "status": str(fields.get("status") or ""),
        "runs": str(fields.get("runs", "")),
        "series": str(fields.get("series", "")),
        "points": _number_text(fields.get("points"), count_text),
        "size": _number_text(fields.get("bytes"), size_text),
        "author": str(fields.get("author") or ""),
        "name": str(fields["name"]),
    }


def expires_soon(experiment: Mapping[str, Any]) -> bool:
    """Return whether an experiment will be deleted by itself within `EXPIRING_DAYS`."""
    text = experiment.get("expires_at")  # none from a server before that
    if not isinstance(text, str):
        return False
    expires_at = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return expires_at < datetime.now(timezone.utc) + timedelta(days=EXPIRING_DAYS)


def print_fields(experiment: Mapping[str, Any]) -> None:
    """Print the fields of an experiment, one per line; those in an object, each on its own.

    A text of several lines is printed below its name, indented.
    """
    fields = _flatten_details(experiment)
    size = fields.pop("bytes", None)  # null, as points, for who may not know
    if size is not None:
        fields["size"] = f"{_number_text(size, size_text)} (estimated)"
    if fields.get("points") is not None:
        received = _number_text(fields["points"], "{:,}".format)
        fields["points"] = f"{received} received, including superseded points"
    for name in _TIMES:
        if fields.get(name):
            fields[name] = time_text(fields[name], SECONDS_FORM)
    known = [name for name in _FIRST_FIELDS if name in fields]
    for name in [*known, *(name for name in fields if name not in _FIRST_FIELDS)]:
        _print_field(name, fields[name])


def time_text(text: Any, form: str) -> str:
    """Return a time of the API (RFC 3339) as local time, or as it is if it is none."""
    try:
        time = datetime.fromisoformat(str(text).replace("Z", "+00:00"))
        return time.astimezone().strftime(form)
    except (ValueError, OverflowError, OSError):
        return str(text)


def attempt_lines(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each attempt of the first restarted runs."""
    for run in runs[:RESTARTED_RUNS_SHOWN]:
        *earlier, newest = run["attempts"]
        for attempt in earlier:
            points = f"{counted(attempt['superseded_points'], 'point')} superseded"
            yield (
                f"attempt {attempt['attempt']} of {run['run']!r}: "
                f"began {wall_time_text(attempt['started_at'], SECONDS_FORM)}, {points}"
            )
        yield (
            f"attempt {newest['attempt']} of {run['run']!r}: "
            f"began {wall_time_text(newest['started_at'], SECONDS_FORM)}, shown"
        )
    if len(runs) > RESTARTED_RUNS_SHOWN:
        more = counted(len(runs) - RESTARTED_RUNS_SHOWN, "more run")
        yield f"and {more} with several attempts (--json)"


def _flatten_details(experiment: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with those of `details` beside them; a count that is no total has a +."""
    fields = dict(experiment)
    details = fields.pop("details", None)
    if not isinstance(details, dict):
        return fields
    more = "" if details.get("is_exact", True) else "+"
    for name in ("runs", "series"):
        if name in details:
            fields[name] = f"{_number_text(details[name], '{:,}'.format)}{more}"
    if details.get("author"):
        fields["author"] = details["author"]
    return fields


def _print_field(name: str, value: Any) -> None:
    if value is None or value in ("", [], {}):
        return
    if isinstance(value, dict):
        for key, each in value.items():
            print_line(f"{name}.{key}: {each}")
    elif isinstance(value, list):
        print_line(f"{name}: {', '.join(map(str, value))}")
    elif isinstance(value, str) and "\n" in value.strip() and name in {"description", "notes"}:
        print_line(f"{name}:")
        for line in value.strip().splitlines():
            print_line(f"    {line}")
    else:
        print_line(f"{name}: {value}")


def _number_text(value: Any, form: Any) -> str:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return form(value) if is_number else str("" if value is None else value)
