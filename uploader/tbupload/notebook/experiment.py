"""`Experiment`: an experiment's runs, tags, and data as DataFrames."""

from __future__ import annotations

import os
import re
import sys
import urllib.parse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Union

import numpy as np

from tbupload.config import check_token, find_access
from tbupload.console.terminal import write_line
from tbupload.errors import Refused, UsageError
from tbupload.export.points import read_points
from tbupload.export.remote_series import SeriesPart
from tbupload.export.session_table import SessionColumns, iter_columns
from tbupload.export.sessions import read_sessions
from tbupload.http.api_schemas import ATTEMPTS, METADATA, RUNS
from tbupload.http.response_schema import Schema, array, mapping, string
from tbupload.http.retry import RetryPolicy
from tbupload.http.transport import Transport
from tbupload.limits import WIRE_LIMIT_MAX
from tbupload.notebook import data_frames, live_picture
from tbupload.notebook.data_frames import Library
from tbupload.notebook.page_view import Place, render
from tbupload.notebook.point_columns import point_columns, take_rows, to_array
from tbupload.notebook.series_listing import series_columns
from tbupload.notebook.unknown_names import warn_of_unknown
from tbwire.points import BlobSequencePoints, DataClassName, ScalarPoints, TensorPoints

RETRY_TIMEOUT_SECONDS: Final = 60.0
"""How long a request is retried while the server does not respond."""

Names = Union[str, Sequence[str], None]


class Experiment:
    """An experiment on a tbhub server, readable as DataFrames.

    Nothing is cached: every property and method requests the current data from the server.

        experiment = Experiment("https://tbhub.example.org/experiment/ID/")
        experiment.scalars(tag="loss", pivot=True)

    Methods raise `tbupload.errors.Refused` if the server rejects a request (for example because
    the token is not valid), and `tbupload.errors.Unreachable` if it does not respond for 60 s.

    Args:
        url_or_id: the experiment's URL, a share link, or its ID.
        token: the token; by default the one in the link, in TBHUB_TOKEN or in the config file.
        server: the server's address; by default that of the URL, of TBHUB_SERVER or of the
            config file.
        cacert: a PEM file of certificate authorities to trust.
        library: "pandas" or "polars", the type of the DataFrames; by default whichever is
            installed, with pandas first.
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
        link_server, self.experiment_id, link_token = _parse(url_or_id)
        access = find_access(server, os.environ, link=link_server)

        explicit_token = token or link_token
        if explicit_token is None:
            for warning in access.warnings:
                _warn(warning)
            used_token = access.token
        else:
            used_token = check_token(explicit_token)

        self._cacert = None if cacert is None else Path(cacert)
        self._token = used_token
        self._transport = Transport(
            access.server,
            used_token,
            self._cacert,
            RetryPolicy(RETRY_TIMEOUT_SECONDS),
            _warn,
        )
        self._path = f"/api/v1/experiments/{self.experiment_id}"
        self._library = library

    def __repr__(self) -> str:
        return f"Experiment({self._transport.server}/experiment/{self.experiment_id}/)"

    def show(self, height: int | None = None) -> None:
        """Show the experiment below a notebook's cell: a link, and curves that follow a training.

        If the server allows frames, its page in place of the curves, `height` pixels high.
        """
        live_picture.show(self._place(), repr(self), height)

    _ipython_display_ = show

    def to_html(self, height: int | None = None) -> str:
        """Return what a notebook shows, as it is now."""
        return render(self._place(), height).html

    _repr_html_ = to_html

    @property
    def runs(self) -> Runs:
        """Return all runs by their names, in the order of their creation on the server."""
        return Runs(Run(run["run"], self) for run in self._get("/runs", RUNS)["runs"])

    @property
    def tags(self) -> dict[str, list[str]]:
        """Return the tags of each run, of all data classes (scalars, tensors, blob sequences)."""
        tags: dict[str, list[str]] = self._get("/names", mapping(array(string)))
        return tags

    @property
    def name(self) -> str:
        """Return the experiment's name; empty if it has none."""
        return str(self.metadata["name"])

    @property
    def url(self) -> str:
        """Return the address of the experiment's page."""
        return str(self.metadata["url"])

    @property
    def status(self) -> str | None:
        """Return how the training is: running, finished, failed, killed, unknown or silent.

        None without recorded uploads, and for readers who are not shown them.
        """
        status: str | None = self.metadata.get("status")
        return status

    @property
    def experiment_tags(self) -> list[str]:
        """Return the tags of the experiment itself; `tags` are those of its runs."""
        tags: list[str] = self.metadata["tags"]
        return tags

    @property
    def metadata(self) -> dict[str, Any]:
        """Return what is known about the experiment itself, by name.

        name, description, notes, tags, properties, origin, visibility, created_by, points, bytes,
        and times in ISO 8601 (created_at, updated_at, data_at).
        """
        return self._get("", METADATA)

    @property
    def properties(self) -> dict[str, str]:
        """Return the experiment's properties, texts by name."""
        properties: dict[str, str] = self.metadata["properties"]
        return properties

    def series(
        self,
        run: Names = None,
        tag: Names = None,
        *,
        plugin: str | None = None,
        library: Library | None = None,
    ) -> Any:
        """Return the series with their summary metadata as a DataFrame, a row each.

        Columns: run, tag, data_class ("scalar", "tensor" or "blob_sequence"), plugin, display_name,
        description, plugin_content (bytes, as the plugin wrote them), points, max_step,
        max_wall_time (seconds since the epoch). Arguments as in `scalars`.
        """
        name, _ = data_frames.load(library or self._library)
        return data_frames.make(self._list_series(run, tag, plugin), name)

    def list_runs_by_start(self) -> list[str]:
        """Return the names of all runs by their start time; unknown ones first."""
        runs = sorted(self._get("/runs", RUNS)["runs"], key=lambda run: run["start_time"] or 0.0)
        return [run["run"] for run in runs]

    def scalars(
        self,
        run: Names = None,
        tag: Names = None,
        *,
        sampling: str = "all",
        attempt: int | None = None,
        pivot: bool = False,
        library: Library | None = None,
        **query: Any,
    ) -> Any:
        """Return scalar points as a DataFrame, by default all of them.

        Columns: run and tag (categorical), step (int64), wall_time (float64, seconds since the
        epoch), value (float64). Rows are sorted by run, tag and step.

        Args:
            run: a run's name, or a list of names; by default all runs.
            tag: a tag's name, or a list of names; by default all tags.
            sampling: "all", or a sampling rule ("uniform", "linear", "extremes"), which returns
                `downsample` points of each series.
            pivot: return one row per (run, step) and one column per tag instead; a value is null
                where a tag has no point at that step.
            library: "pandas" or "polars", instead of that of the experiment.
            attempt: read restarted runs as they were just before the next attempt began; runs with
                fewer attempts as they are shown.
            query: further fields of the data API: downsample, plugin, step_min, step_max, last …

        Raises:
            ImportError: the DataFrame library is not installed; nothing is read then.
            UsageError: `pivot` is set, and a tag is named "run" or "step"; or `run` or `tag` is
                no name.
        """
        name, _ = data_frames.load(library or self._library)  # fails before anything is read
        parts = self._read("scalars", run, tag, {"sampling": sampling, "attempt": attempt, **query})
        values = [part.columns.values for part in parts if isinstance(part.columns, ScalarPoints)]
        value = np.concatenate(values, dtype=np.float64) if values else np.empty(0)
        frame = data_frames.make({**point_columns(parts), "value": value}, name)
        return data_frames.pivot(frame) if pivot else frame

    def tensors(
        self,
        run: Names = None,
        tag: Names = None,
        *,
        sampling: str = "all",
        attempt: int | None = None,
        library: Library | None = None,
        **query: Any,
    ) -> Any:
        """Return tensor points (histograms, texts, PR curves and others) as a DataFrame.

        Arguments, columns and order are those of `scalars`; the values are numpy arrays. Texts
        are arrays of str, or of bytes if they are not UTF-8; bfloat16 becomes float32.
        """
        name, _ = data_frames.load(library or self._library)
        parts = self._read("tensors", run, tag, {"sampling": sampling, "attempt": attempt, **query})
        values = [
            to_array(tensor)
            for part in parts
            if isinstance(part.columns, TensorPoints)
            for tensor in part.columns.tensors
        ]
        return data_frames.make({**point_columns(parts), "value": values}, name)

    def blobs(
        self,
        run: Names = None,
        tag: Names = None,
        *,
        sampling: str = "all",
        attempt: int | None = None,
        library: Library | None = None,
        **query: Any,
    ) -> Any:
        """Return the blobs (images, audio, graphs) as a DataFrame with one row per blob.

        Columns: run, tag, step and wall_time as in `scalars`; index (position in the step's blob
        sequence), key (the argument of `blob`), size (bytes), content_type (as it is served), and
        logged_content_type (as it was logged with audio, or empty). Arguments as in `scalars`.
        """
        name, _ = data_frames.load(library or self._library)
        parts = self._read(
            "blob_sequences", run, tag, {"sampling": sampling, "attempt": attempt, **query}
        )
        columns = [part.columns for part in parts if isinstance(part.columns, BlobSequencePoints)]
        sequences = [sequence for column in columns for sequence in column.sequences]
        blobs = [blob for sequence in sequences for blob in sequence]
        logged = [text for column in columns for text in column.logged_content_types]

        # A row per blob: the index of its sequence selects run, tag, step and wall time.
        rows = np.repeat(np.arange(len(sequences)), [len(sequence) for sequence in sequences])
        points = {label: take_rows(column, rows) for label, column in point_columns(parts).items()}
        return data_frames.make(
            {
                **points,
                "index": np.array(
                    [index for sequence in sequences for index in range(len(sequence))], np.int64
                ),
                "key": [blob.key for blob in blobs],
                "size": np.array([blob.size for blob in blobs], np.int64),
                "content_type": [blob.content_type for blob in blobs],
                "logged_content_type": [logged[row] for row in rows.tolist()],
            },
            name,
        )

    def attempts(self, *, library: Library | None = None) -> Any:
        """Return the attempts of restarted runs as a DataFrame with one row per attempt.

        Columns: run, attempt (its number, from 1), started_at (seconds since the epoch),
        superseded_points (points of it that later attempts superseded; 0 for the newest). Runs that
        never repeated a step have no row. `scalars(attempt=1)` reads an earlier state.
        """
        name, _ = data_frames.load(library or self._library)
        rows = [
            (run["run"], each)
            for run in self._get("/attempts", ATTEMPTS)["runs"]
            for each in run["attempts"]
        ]
        columns = {
            "run": [run for run, _ in rows],
            "attempt": np.array([each["attempt"] for _, each in rows], np.int64),
            "started_at": np.array([each["started_at"] for _, each in rows], np.float64),
            "superseded_points": np.array(
                [each["superseded_points"] for _, each in rows], np.int64
            ),
        }
        return data_frames.make(columns, name)

    def blob(self, key: str) -> bytes:
        """Return the bytes of a blob by its key, at most 1 GiB. Raise Refused for a larger one."""
        path = f"/api/v1/blobs/{urllib.parse.quote(key, safe='.')}"
        chunks, size = [], 0
        with self._transport.stream("GET", path, headers={"Accept": "*/*"}) as received:
            for chunk in received:
                chunks.append(chunk)
                size += len(chunk)
                if size > WIRE_LIMIT_MAX:
                    raise Refused(
                        f"the blob is over the limit of {WIRE_LIMIT_MAX:,} bytes", status=200
                    )
        return b"".join(chunks)

    def hparams(self, *, library: Library | None = None) -> Any:
        """Return the sessions (runs with hyperparameters) as a DataFrame, a row each, by name.

        Columns: run, group ("" if the session names none), status ("success", "failure", "running",
        or null), start_time and end_time (seconds since the epoch), model_uri and monitor_url;
        `hparams.NAME` for each hyperparameter; `metrics.TAG` for the last value of each of the
        session's scalars. Scalars of a run below the session's, for example "validation", are named
        `metrics.validation/TAG`. Missing values are null. A hyperparameter with values of several
        types is a column of strings, with other values as in JSON (1.0, true).

        Raises Refused also if the server's version is too old to have an HParams API.
        """
        name, _ = data_frames.load(library or self._library)
        columns = SessionColumns()
        pages = read_sessions(self._transport, self.experiment_id)
        rows = [columns.add(session) for page in pages for session in page.sessions]
        types = map(columns.type_of, range(len(columns.names)))
        values = map(data_frames.NullableColumn, iter_columns(columns, rows), types)
        return data_frames.make(dict(zip(columns.names, values)), name)

    def _place(self, run: str | None = None) -> Place:
        """Return where the experiment is, or one of its runs."""
        return Place(self._transport.server, self.experiment_id, self._token, self._cacert, run)

    def _get(self, path: str, schema: Schema) -> dict[str, Any]:
        return self._transport.request("GET", self._path + path).json(schema)

    def _read(
        self, kind: DataClassName, run: Names, tag: Names, query: dict[str, Any]
    ) -> list[SeriesPart]:
        """Read the points of the selected runs and tags; warn of names that there are not."""
        query = {name: value for name, value in query.items() if value is not None}
        fields = {**_selection(run, tag), **query}
        parts = list(read_points(self._transport, self.experiment_id, kind, fields))
        received = {
            "run": {part.series.run for part in parts},
            "tag": {part.series.tag for part in parts},
        }
        warn_of_unknown(_selection(run, tag), received, lambda: self.tags)
        return parts

    def _list_series(self, run: Names, tag: Names, plugin: str | None) -> dict[str, Any]:
        """List the selected series as columns; warn of names that there are not."""
        selection = _selection(run, tag) | ({} if plugin is None else {"plugin": plugin})
        columns = series_columns(self._transport, self._path, selection)
        received = {"run": set(columns["run"]), "tag": set(columns["tag"])}
        warn_of_unknown(_selection(run, tag), received, lambda: self.tags)
        return columns


class Run(str):
    """A run of an experiment: its name, and what there is of it. A notebook shows its curves."""

    __slots__ = ("experiment",)
    experiment: Experiment

    def __new__(cls, name: str, experiment: Experiment) -> Run:
        """Return the run of this name."""
        run = super().__new__(cls, name)
        run.experiment = experiment
        return run

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Let copies and pickles be names alone."""
        return str, (str(self),)

    @property
    def name(self) -> str:
        """Return the run's name."""
        return str(self)

    @property
    def url(self) -> str:
        """Return the address of the experiment's page with this run alone."""
        return f"{self.experiment.url}about?{urllib.parse.urlencode({'run': self.name})}"

    @property
    def tags(self) -> list[str]:
        """Return its tags, of all data classes."""
        return self.experiment.tags.get(self.name, [])

    @property
    def status(self) -> str | None:
        """Return how the training of its experiment is."""
        return self.experiment.status

    def scalars(self, tag: Names = None, **query: Any) -> Any:
        """Return its scalar points as a DataFrame; arguments as of `Experiment.scalars`."""
        return self.experiment.scalars(self.name, tag, **query)

    def show(self) -> None:
        """Show the run below a notebook's cell: a link, and curves that follow a training."""
        live_picture.show(self.experiment._place(self.name), repr(self))  # noqa: SLF001 - a part

    _ipython_display_ = show


class Runs(list[Run]):
    """The runs of an experiment; `experiment.runs()` is the same as `experiment.runs`."""

    def __call__(self) -> Runs:
        """Return the runs."""
        return self


def _parse(url_or_id: str) -> tuple[str | None, str, str | None]:
    """Return server (or None), experiment ID and token (or None) of an experiment's URL or ID."""
    if re.fullmatch(r"[0-9A-Za-z]+", url_or_id):
        return None, url_or_id, None
    match = re.fullmatch(r"(https?://.+?)/experiment/([0-9A-Za-z]+)(?:[/?#].*)?", url_or_id)
    if match is None:
        raise UsageError(f"{url_or_id[:200]!r} is neither an experiment's ID nor its URL")
    query = urllib.parse.parse_qs(urllib.parse.urlsplit(url_or_id).query)
    return match[1], match[2], query.get("token", [None])[0]


def _selection(run: Names, tag: Names) -> dict[str, Any]:
    """Return the names that select series as the fields of a request."""
    return {
        kind: _as_list(kind, names)
        for kind, names in (("run", run), ("tag", tag))
        if names is not None
    }


def _as_list(kind: str, names: str | Sequence[str]) -> list[str]:
    """Return the names as a list. Raises UsageError for what is no name and no list of names."""
    listed = [names] if isinstance(names, str) else names
    if not isinstance(listed, Iterable) or not all(isinstance(name, str) for name in listed):
        raise UsageError(f"{kind} must be a name or a list of names, not {names!r:.200}")
    return list(listed)


def _warn(text: str) -> None:
    write_line(sys.stderr, text)
