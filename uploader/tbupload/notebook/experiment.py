"""An experiment on a server, as Python sees it: runs, tags, and DataFrames of what they hold."""

from __future__ import annotations

import os
import re
import sys
import urllib.parse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from google.protobuf.message import DecodeError

from tbupload.config import check_token, find_access
from tbupload.console.terminal import write_line
from tbupload.errors import Refused, UsageError
from tbupload.events.points import ScalarColumns, Tensor, TensorColumns
from tbupload.export.points import DataClass, RemoteSequenceColumns, SeriesPart, read_points
from tbupload.http.api_schemas import RUNS
from tbupload.http.pagination import read_pages
from tbupload.http.response_schema import Schema, array, mapping, record, string, unreadable_answer
from tbupload.http.retry import RetryPolicy
from tbupload.http.transport import Response, Transport
from tbupload.limits import WIRE_LIMIT_MAX
from tbupload.notebook import data_frames, hyperparameters
from tbupload.notebook.data_frames import CategoryColumn, Library
from tbwire import tensors

RETRY_TIMEOUT_SECONDS: Final = 60.0
"""How long a server that does not answer is tried."""

_SERIES_PER_PAGE: Final = 5_000

Names = str | Sequence[str] | None


class Experiment:
    """One experiment; every look asks the server, so that it is as live as the experiment is.

    `url_or_id` is the experiment's URL, a share link, or its id; server and token are found as `tbupload` finds them
    unless they are given or stand in the link. `library` ("pandas", "polars") is that of the DataFrames: whichever is
    installed by default. Methods raise Refused and Unreachable of `tbupload.errors`.
    """

    def __init__(
        self,
        url_or_id: str,
        *,
        token: str | None = None,
        server: str | None = None,
        cacert: str | os.PathLike[str] | None = None,
        library: Library | None = None,
    ) -> None:
        found, self.experiment_id, shared = _parse(url_or_id)
        access = find_access(server, os.environ, link=found)
        given = token or shared
        if given is None:
            for warning in access.warnings:
                _warn(warning)
        secret = access.token if given is None else check_token(given)
        patience = RetryPolicy(RETRY_TIMEOUT_SECONDS)
        self._transport = Transport(
            access.server, secret, None if cacert is None else Path(cacert), patience, _warn
        )
        self._path = f"/api/v1/experiments/{self.experiment_id}"
        self._library = library

    def __repr__(self) -> str:
        return f"Experiment({self._transport.server}/experiment/{self.experiment_id}/)"

    @property
    def runs(self) -> list[str]:
        """The names of all runs, in the order in which they came."""
        return [run["run"] for run in self._get("/runs", RUNS)["runs"]]

    @property
    def tags(self) -> dict[str, list[str]]:
        """The tags of each run, of scalars, tensors and blob sequences alike."""
        tags: dict[str, list[str]] = self._get("/names", mapping(array(string)))
        return tags

    def list_runs_by_start(self) -> list[str]:
        """The names of all runs, by the time of their first event; those without one first."""
        runs = sorted(self._get("/runs", RUNS)["runs"], key=lambda run: run["start_time"] or 0.0)
        return [run["run"] for run in runs]

    def scalars(
        self,
        run: Names = None,
        tag: Names = None,
        *,
        sampling: str = "all",
        pivot: bool = False,
        library: Library | None = None,
        **query: Any,
    ) -> Any:
        """A row a point: run, tag (categories), step (int64), wall_time (seconds since the epoch), value (float64).

        All points, by run, tag and step; of another `sampling` ("uniform", "linear", "extremes") `downsample` points of
        each series. `run` and `tag` are names or lists of them; more fields of the data API go by their names
        (plugin, step_min, step_max, last, …). With `pivot`, a row a run and step, and a column a tag, with nulls where
        a tag has no such step.
        """
        name, _ = data_frames.load(library or self._library)  # before anything is read
        parts = list(self._read("scalars", run, tag, {"sampling": sampling, **query}))
        values = [part.columns.values for part in parts if isinstance(part.columns, ScalarColumns)]
        value = np.concatenate(values, dtype=np.float64) if values else np.empty(0)
        frame = data_frames.make({**_columns(parts), "value": value}, name)
        return data_frames.pivot(frame) if pivot else frame

    def tensors(
        self,
        run: Names = None,
        tag: Names = None,
        *,
        sampling: str = "all",
        library: Library | None = None,
        **query: Any,
    ) -> Any:
        """A row a point, as `scalars`; the values are numpy arrays: histograms, texts (arrays of str), PR curves."""
        name, _ = data_frames.load(library or self._library)
        parts = list(self._read("tensors", run, tag, {"sampling": sampling, **query}))
        found = [
            one
            for part in parts
            if isinstance(part.columns, TensorColumns)
            for one in part.columns.tensors
        ]
        return data_frames.make({**_columns(parts), "value": [_array(one) for one in found]}, name)

    def blobs(
        self,
        run: Names = None,
        tag: Names = None,
        *,
        sampling: str = "all",
        library: Library | None = None,
        **query: Any,
    ) -> Any:
        """A row a blob: run, tag, step, wall_time, index within its step, key, size (bytes), and two content types.

        `content_type` is what it is served as, `logged_content_type` what was logged with audio, or empty. `blob` gives
        the bytes of a key.
        """
        name, _ = data_frames.load(library or self._library)
        parts = list(self._read("blob_sequences", run, tag, {"sampling": sampling, **query}))
        columns = [
            part.columns for part in parts if isinstance(part.columns, RemoteSequenceColumns)
        ]
        sequences = [sequence for one in columns for sequence in one.sequences]
        rows = np.repeat(np.arange(len(sequences)), [len(sequence) for sequence in sequences])
        found = [blob for sequence in sequences for blob in sequence]
        logged = [content_type for one in columns for content_type in one.logged_content_types]
        points = {label: _take_rows(column, rows) for label, column in _columns(parts).items()}
        return data_frames.make(
            {
                **points,
                "index": np.array(
                    [index for sequence in sequences for index in range(len(sequence))], np.int64
                ),
                "key": [blob.key for blob in found],
                "size": np.array([blob.size for blob in found], np.int64),
                "content_type": [blob.content_type for blob in found],
                "logged_content_type": [logged[row] for row in rows.tolist()],
            },
            name,
        )

    def blob(self, key: str) -> bytes:
        """The bytes of a blob, by its key."""
        path = f"/api/v1/blobs/{urllib.parse.quote(key, safe='.')}"
        found, size = [], 0
        with self._transport.stream("GET", path, headers={"Accept": "*/*"}) as pieces:
            for piece in pieces:
                found.append(piece)
                size += len(piece)
                if size > WIRE_LIMIT_MAX:
                    raise Refused(
                        f"the blob is over the limit of {WIRE_LIMIT_MAX:,} bytes", status=200
                    )
        return b"".join(found)

    def hparams(self, *, library: Library | None = None) -> Any:
        """A row a session (a run with hyperparameters): run, group, status, start_time, end_time (seconds).

        Then its hyperparameters as `hparams.NAME` and the last value of each of its scalars as `metrics.TAG`; those of
        a run below the session's, as its "validation", as `metrics.validation/TAG`. What a session lacks is null.
        """
        name, _ = data_frames.load(library or self._library)
        try:
            sessions = hyperparameters.read_sessions(
                self._list("tensors", hyperparameters.SESSIONS, plugin="hparams")
            )
            scalars = self._list("scalars", hyperparameters.SCALARS) if sessions else {}
            metrics = hyperparameters.metrics_by_session(sessions, scalars)
        except (ValueError, DecodeError) as error:
            raise unreadable_answer(f"hparams: {error}") from error
        return data_frames.make(hyperparameters.as_columns(sessions, metrics), name)

    def _get(self, path: str, schema: Schema) -> dict[str, Any]:
        return self._transport.request("GET", self._path + path).json(schema)

    def _list(self, kind: DataClass, schema: Schema, **query: Any) -> dict[str, dict[str, Any]]:
        """All series of one kind, as the server lists them, by run and tag."""

        def read(after: str | None) -> Response:
            fields = {**query, "limit": _SERIES_PER_PAGE, "after": after or ""}
            return self._transport.request(
                "GET", f"{self._path}/{kind}?{urllib.parse.urlencode(fields)}"
            )

        listed: dict[str, dict[str, Any]] = {}
        for page in read_pages(read, record({"series": schema})):
            for run, tags in page["series"].items():
                listed.setdefault(run, {}).update(tags)
        return listed

    def _read(
        self, kind: DataClass, run: Names, tag: Names, query: dict[str, Any]
    ) -> Iterable[SeriesPart]:
        chosen = {
            name: _as_list(names)
            for name, names in (("run", run), ("tag", tag))
            if names is not None
        }
        return read_points(self._transport, self.experiment_id, kind, {**chosen, **query})


def _parse(url_or_id: str) -> tuple[str | None, str, str | None]:
    """Server, experiment's id and token, as far as they are in it."""
    if re.fullmatch(r"[0-9A-Za-z]+", url_or_id):
        return None, url_or_id, None
    found = re.fullmatch(r"(https?://.+?)/experiment/([0-9A-Za-z]+)(?:[/?#].*)?", url_or_id)
    if found is None:
        raise UsageError(f"{url_or_id[:200]!r} is neither an experiment's id nor its URL")
    query = urllib.parse.parse_qs(urllib.parse.urlsplit(url_or_id).query)
    return found[1], found[2], query.get("token", [None])[0]


def _as_list(names: str | Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _columns(parts: Sequence[SeriesPart]) -> dict[str, Any]:
    """What all points have: run, tag, step, wall time."""
    lengths = [len(part.columns.steps) for part in parts]
    return {
        "run": _labels([part.series.run for part in parts], lengths),
        "tag": _labels([part.series.tag for part in parts], lengths),
        "step": _join_columns([part.columns.steps for part in parts], np.int64),
        "wall_time": _join_columns([part.columns.wall_times for part in parts], np.float64),
    }


def _join_columns(columns: Sequence[Any], dtype: Any) -> Any:
    return np.concatenate(columns) if columns else np.empty(0, dtype)


def _labels(names: Sequence[str], lengths: Sequence[int]) -> CategoryColumn:
    codes = {name: code for code, name in enumerate(dict.fromkeys(names))}
    return CategoryColumn(
        list(codes), np.repeat(np.array([codes[name] for name in names], np.int32), lengths)
    )


def _take_rows(column: Any, rows: Any) -> Any:
    return (
        CategoryColumn(column.names, column.codes[rows])
        if isinstance(column, CategoryColumn)
        else column[rows]
    )


def _array(tensor: Tensor) -> Any:
    """The tensor as numpy has it; texts as str where they are UTF-8, bfloat16 as float32."""
    array = tensors.to_numpy(tensor.dtype, tensor.shape, tensor.data)
    if tensor.dtype == tensors.BFLOAT16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    if tensor.dtype != tensors.STRING:
        return array
    try:
        return np.array([one.decode() for one in array.reshape(-1)], object).reshape(array.shape)
    except UnicodeDecodeError:
        return array


def _warn(text: str) -> None:
    write_line(sys.stderr, text)
