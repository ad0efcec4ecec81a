"""Schemas of the API's JSON answers, and the values parsed from them."""

from __future__ import annotations

import base64
from typing import Any, Final

from tbupload.http.response_schema import (
    Json,
    anything,
    array,
    boolean,
    by_run_and_tag,
    check,
    identifier,
    integer,
    mapping,
    nullable,
    number,
    plain,
    record,
    string,
    unreadable_answer,
)
from tbupload.http.wire_limits import WireLimits
from tbupload.limits import WIRE_LIMIT_MAX
from tbwire import wire_pb2

EXPERIMENT: Final = record(
    {"experiment_id": identifier, "url": string, "name": string, "created_at": string}, rest=plain
)
METADATA: Final = record(
    {
        "name": string,
        "properties": mapping(string),
        "origin": mapping(string),
        "tags": array(string),
    },
    rest=plain,
)
EXPERIMENTS: Final = record({"experiments": array(EXPERIMENT)})
_DELETED_EXPERIMENT: Final = record(
    {"experiment_id": identifier, "name": string, "deleted_at": string}, rest=plain
)
DELETED: Final = record({"experiments": array(_DELETED_EXPERIMENT)})
DELETED_RUNS: Final = record({"runs": array(record({"name_sha256": string, "deleted_at": string}))})
SERIES_PAGE: Final = record({"series": by_run_and_tag({"count": integer()})})
_ATTEMPT: Final = record(
    {"attempt": integer(1), "started_at": number, "superseded_points": integer()}
)
ATTEMPTS: Final = record({"runs": array(record({"run": string, "attempts": array(_ATTEMPT)}))})
_UPLOAD: Final = record(
    {
        **dict.fromkeys(("upload_id", "status", "status_of", "detail", "started_at"), string),
        "ended_at": nullable(string),
        "origin": mapping(string),
        "packages": array(string),
    },
    rest=plain,
)
UPLOADS: Final = record({"uploads": array(_UPLOAD)})
_LINE: Final = record({"text": string, "time": nullable(string)}, rest=plain)
CONSOLE: Final = record({"lines": array(_LINE)})
USAGE: Final = record({"limits": mapping(mapping(plain))}, rest=plain)
LIMITS: Final = record({"limits": mapping(plain)})
STREAMS: Final = record({"streams": array(anything)})  # `parse_cursor` checks each
FIRST_STREAMS: Final = record(
    {"experiment_id": identifier, "url": string, "limits": mapping(plain)}
)
CHANGED: Final = record({"changed": boolean})
RUNS: Final = record({"runs": array(record({"run": string, "start_time": nullable(number)}))})
_DIGEST: Final = record(
    {
        **dict.fromkeys(
            ("run", "tag", "plugin", "data_class", "sha256", "metadata_sha256"), string
        ),
        "count": integer(),
    }
)
DIGESTS: Final = record({"series": array(_DIGEST)})
SERIES: Final = by_run_and_tag({"max_step": integer(-(2**63)), "max_wall_time": number})
TENSOR_SERIES: Final = by_run_and_tag({"summary_metadata": record({"content": string})})
RECORDS: Final = record({"records": string})
NEW_TOKEN: Final = record({"token": string}, rest=plain)
TOKEN: Final = record(
    {
        **dict.fromkeys(("id", "prefix", "label"), string),
        **dict.fromkeys(("revoked_at", "expires_at"), nullable(string)),
        "scopes": array(string),
    },
    rest=plain,
)
OBJECT_FAULT: Final = record(
    {
        "run": string,
        "tag": string,
        "first_step": integer(-(2**63)),
        "sha256": string,
        "problem": string,
    }
)
OBJECT_CHECKS: Final = record(
    {"objects": integer(), "bytes": integer(), "faults": array(OBJECT_FAULT)}
)
TOKENS: Final = record({"tokens": array(TOKEN)})
BEGUN_LOGIN: Final = record(
    {
        **dict.fromkeys(("device_code", "user_code", "verification_uri"), string),
        "expires_in": integer(1, 24 * 3600),
        "interval": integer(1, 60),
    }
)
LOGIN_STATE: Final = record({"status": string, "token": nullable(string)}, rest=plain)
WORKSPACE: Final = record({"workspace_id": integer(), "name": string}, rest=plain)
ME: Final = record(
    {
        "person": nullable(record({"name": string, "email": string})),
        "token": record(
            {"id": nullable(string), "scopes": array(string), "label": nullable(string)}, rest=plain
        ),
        "workspace": nullable(WORKSPACE),
    },
    rest=plain,
)
"""A share link has no label and no workspace; an anonymous one has no id either."""

REQUIRED_LIMITS: Final = (
    "batch_bytes_max",
    "blob_inline_bytes_max",
    "blob_bytes_max",
    "tensor_bytes_max",
    "name_chars_max",
    "metadata_bytes_max",
)
"""Limits that every server sends; an upload is not possible without them."""


def parse_limits(fields: Json) -> WireLimits:
    """Return the server's limits, each at most WIRE_LIMIT_MAX: the reader allocates up to them.

    Raises Refused if a required one is missing, or is no integer.
    """
    known = {name: fields[name] for name in WireLimits.__dataclass_fields__ if name in fields}
    check(known, mapping(integer(0)))
    missing = set(REQUIRED_LIMITS) - {name for name, limit in known.items() if limit}
    if missing:
        raise unreadable_answer(f"limits: {min(missing)!r} is missing")
    return WireLimits(**{name: min(limit, WIRE_LIMIT_MAX) for name, limit in known.items()})


def parse_content(fields: Json, run: str, tag: str) -> bytes:
    """Return the content in a series' metadata in a listing, empty if the listing has no such one.

    Raises Refused if it is not in base64.
    """
    series = fields.get(run, {}).get(tag)
    if series is None:
        return b""
    try:
        return base64.b64decode(series["summary_metadata"]["content"])
    except ValueError:
        raise unreadable_answer("content: no base64 where some should be") from None


def parse_cursor(fields: Any) -> wire_pb2.Cursor:
    """Return the upload cursor in a listing's fields; raise Refused if they are not one.

    The message's own setters check types and ranges; a schema would check them a second time.
    """
    try:
        return _make_cursor(fields)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise unreadable_answer("streams: no cursor where one should be") from None


def _make_cursor(fields: Any) -> wire_pb2.Cursor:
    stream = wire_pb2.Stream(
        run=fields["run"],
        file_name=fields["file_name"],
        first_record_digest=bytes.fromhex(fields["first_record_digest"]),
        generation=fields["generation"],
        filters_digest=bytes.fromhex(fields["filters_digest"]),
    )
    skipped = [
        wire_pb2.Skipped(reason=reason, count=count) for reason, count in fields["skipped"].items()
    ]
    return wire_pb2.Cursor(
        stream=stream, offset=fields["offset"], checksum=fields["checksum"], skipped=skipped
    )
