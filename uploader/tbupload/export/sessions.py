"""The sessions of an experiment, from the server's HParams API (`docs/hparams.md`).

The server decides what is a session, which metrics it has, and of which type a hyperparameter is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Union

from tbupload.errors import Refused
from tbupload.http.json_calls import JsonCalls, experiment_path
from tbupload.http.response_body import OVERSIZE
from tbupload.http.response_schema import (
    INTEGER_MAX,
    Json,
    Schema,
    array,
    check_that,
    integer,
    mapping,
    record,
    string,
    unreadable_answer,
)
from tbupload.http.transport import Transport
from tbupload.limits import LISTING_BYTES_MAX, LISTING_PAGES_MAX

SESSIONS_PER_PAGE: Final = 2_000
"""Sessions per request at first; fewer after a response that is over a limit."""

HparamValue = Union[str, float, bool]

_STATUSES: Final = {
    "STATUS_UNKNOWN": None,
    "STATUS_SUCCESS": "success",
    "STATUS_FAILURE": "failure",
    "STATUS_RUNNING": "running",
}
_FLOAT64: Final = "DATA_TYPE_FLOAT64"
_NOT_FINITE: Final = frozenset({"NaN", "Infinity", "-Infinity"})
"""How proto3 JSON spells the float64s for which JSON has no number."""

_NO_ROUTE: Final = frozenset({404, 405})
_TOO_LARGE: Final = 413


@dataclass(frozen=True)
class Session:
    """A run with hyperparameters; times in seconds since the epoch, None if unknown.

    `group` is "" if the session names none. `metrics` has the last value of each metric, by group
    (the path of its run below the session) and tag.
    """

    run: str
    group: str
    status: str | None
    start_time: float | None
    end_time: float | None
    model_uri: str | None
    monitor_url: str | None
    hparams: dict[str, HparamValue]
    metrics: dict[tuple[str, str], float]


@dataclass(frozen=True)
class SessionPage:
    """Some sessions, by name, and how many there are in total."""

    sessions: list[Session]
    total: int


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return value in _NOT_FINITE
    return type(value) is float or (type(value) is int and abs(value) <= INTEGER_MAX)


def _hparam(value: Any) -> None:
    if isinstance(value, str):
        string(value)
    else:
        check_that(
            isinstance(value, bool) or _is_number(value), "no hyperparameter where one should be"
        )


def _number(value: Any) -> None:
    check_that(_is_number(value), "no number where one should be")


def _status(value: Any) -> None:
    check_that(isinstance(value, str) and value in _STATUSES, "no status where one should be")


_METRIC: Final = record({"name": record({"group": string, "tag": string}), "value": _number})
_SESSION: Final = record(
    {
        **dict.fromkeys(("name", "modelUri", "monitorUrl"), string),
        **dict.fromkeys(("startTimeSecs", "endTimeSecs"), _number),
        "status": _status,
        "metricValues": array(_METRIC),
    }
)
_GROUP: Final = record({"name": string, "hparams": mapping(_hparam), "sessions": array(_SESSION)})
_PAGE: Final = record({"sessionGroups": array(_GROUP), "totalSize": integer()})
_COLUMNS: Final = record({"hparamInfos": array(record({"name": string, "type": string}))})


def read_sessions(transport: Transport, experiment_id: str) -> Iterator[SessionPage]:
    """Yield all sessions in pages, by name, each session once.

    Sessions that are written or deleted meanwhile may be missing; no others are.

    Raises:
        Refused: There is no such experiment, the server has no HParams API, the experiment is over
            a limit of it, or the response is no valid one.
        Unreachable: The server does not respond.
    """
    return _SessionReader(transport, experiment_id).read()


class _SessionReader(JsonCalls):
    """Reads pages by index, which moves when sessions before it are written or deleted.

    So each page begins with the last session of the page before.
    """

    def __init__(self, transport: Transport, experiment_id: str) -> None:
        super().__init__(transport)
        self._experiment_id = experiment_id
        self._slice = SESSIONS_PER_PAGE
        self._bytes = 0

    def read(self) -> Iterator[SessionPage]:
        """Yield the pages."""
        numbers = self._read_number_columns()
        index = 0
        last: str | None = None
        for _ in range(LISTING_PAGES_MAX):
            start = max(index - 1, 0)
            size, page = self._read_page(start)
            sessions = [_parse(group, numbers) for group in page["sessionGroups"]]
            _check_order(sessions)
            if start and (not sessions or last is None or sessions[0].run > last):
                index = max(start - self._slice, 0)  # sessions before it were deleted
                continue

            new = [session for session in sessions if last is None or session.run > last]
            last = new[-1].run if new else last
            index = start + len(sessions)
            yield SessionPage(new, page["totalSize"])
            if len(sessions) < size or index >= page["totalSize"]:
                return
        raise Refused(
            f"the server's listing does not end: it has more than {LISTING_PAGES_MAX:,} pages",
            status=200,
        )

    def _read_number_columns(self) -> frozenset[str]:
        """Return the hyperparameters that are numbers: in others, "NaN" is a string."""
        fields = {"experimentName": self._experiment_id, "includeMetrics": False}
        try:
            columns = self._post("experiment", fields, _COLUMNS)["hparamInfos"]
        except Refused as refusal:
            if refusal.status in _NO_ROUTE and self._has_experiment():
                raise Refused(
                    f"{self._transport.server} has no HParams API: its version is older than that "
                    "of tbupload; update the server",
                    status=refusal.status,
                ) from refusal
            raise
        return frozenset(column["name"] for column in columns if column["type"] == _FLOAT64)

    def _has_experiment(self) -> bool:
        try:
            self._transport.request("GET", experiment_path(self._experiment_id))
        except Refused:
            return False
        return True

    def _read_page(self, start: int) -> tuple[int, Json]:
        """Return the requested number of sessions and the response; halves pages over a limit."""
        while True:
            size = self._slice + 1  # one to overlap
            fields = {
                "allowedStatuses": list(_STATUSES),
                "startIndex": start,
                "sliceSize": size,
            }
            try:
                return size, self._post("session_groups?per_session=true", fields, _PAGE)
            except Refused as refusal:
                is_over_limit = refusal.status == _TOO_LARGE or refusal.code == OVERSIZE
                if not is_over_limit or self._slice == 1:
                    raise
                self._slice //= 2

    def _post(self, path: str, fields: dict[str, Any], schema: Schema) -> Json:
        address = f"{experiment_path(self._experiment_id, 'hparams')}/{path}"
        response = self._json("POST", address, fields)
        self._bytes += len(response.body)
        if self._bytes > LISTING_BYTES_MAX:
            raise Refused(
                f"the server's listing is over the limit of {LISTING_BYTES_MAX:,} bytes", status=200
            )
        return response.json(schema)


def _check_order(sessions: list[Session]) -> None:
    names = [session.run for session in sessions]
    if any(name >= following for name, following in zip(names, names[1:])):
        raise unreadable_answer("sessionGroups: sessions that are not in the order of their names")


def _parse(group: Json, numbers: frozenset[str]) -> Session:
    """Return the only session of a group; `numbers` are the hyperparameters that are numbers."""
    if len(group["sessions"]) != 1:
        raise unreadable_answer("sessions: not one session in a group")
    (session,) = group["sessions"]
    name = session["name"]
    return Session(
        name,
        "" if group["name"] == name else group["name"],
        _STATUSES[session["status"]],
        float(session["startTimeSecs"]) or None,
        float(session["endTimeSecs"]) or None,
        session["modelUri"] or None,
        session["monitorUrl"] or None,
        {key: _plain(value, key in numbers) for key, value in group["hparams"].items()},
        {
            (each["name"]["group"], each["name"]["tag"]): float(each["value"])
            for each in session["metricValues"]
        },
    )


def _plain(value: Any, is_number: bool) -> HparamValue:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return float(value) if is_number and value in _NOT_FINITE else value
    return float(value)
