"""Sessions as writers log them, made by hand with TensorBoard's own messages, and a client that asks
the HParams API.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence

from tensorboard.plugins.hparams import api_pb2, plugin_data_pb2

from support.batches import ApiClient, metadata, scalars, segment, stream
from tbwire import wire_pb2

STATUSES = ("STATUS_UNKNOWN", "STATUS_SUCCESS", "STATUS_FAILURE", "STATUS_RUNNING")
WALL_TIME = 1.7e9
EXPERIMENT = "_hparams_/experiment"
START = "_hparams_/session_start_info"
END = "_hparams_/session_end_info"


def content_series(tag: str, content: bytes, wall_time: float = WALL_TIME):
    """A series of the hparams plugin with this content, which may be anything."""
    return wire_pb2.Series(
        tag=tag,
        summary_metadata=metadata("hparams", 2, content=content),
        tensors=wire_pb2.TensorPoints(
            steps=bytes(8),
            wall_times=scalars("", [0], wall_times=[wall_time]).scalars.wall_times,
            tensors=[wire_pb2.Tensor(dtype=1, data=bytes(4))],
        ),
    )


def data_series(tag: str, wall_time: float = WALL_TIME, **data):
    """A series of the hparams plugin with one of its messages."""
    content = plugin_data_pb2.HParamsPluginData(version=0, **data).SerializeToString()
    return content_series(tag, content, wall_time)


def start(hparams: Mapping[str, object] | None = None, wall_time: float = WALL_TIME, **fields):
    """A session's start; None among the hyperparameters is a null value."""
    info = plugin_data_pb2.SessionStartInfo(**fields)
    for name, value in (hparams or {}).items():
        set_value(info.hparams[name], value)
    return data_series(START, wall_time, session_start_info=info)


def set_value(field, value) -> None:
    """Puts a Python value into a protobuf Value."""
    if value is None:
        field.null_value = 0
    elif isinstance(value, bool):
        field.bool_value = value
    elif isinstance(value, str):
        field.string_value = value
    else:
        field.number_value = value


def end(status: str | int = "STATUS_SUCCESS", end_time: float = 0.0, wall_time: float = WALL_TIME):
    """A session's end."""
    info = plugin_data_pb2.SessionEndInfo(end_time_secs=end_time)
    info.status = api_pb2.Status.Value(status) if isinstance(status, str) else status
    return data_series(END, wall_time, session_end_info=info)


def summary(
    hparams: Sequence[api_pb2.HParamInfo] = (),
    metrics: Sequence[api_pb2.MetricInfo] = (),
    wall_time: float = WALL_TIME,
    **fields,
):
    """An experiment summary."""
    experiment = api_pb2.Experiment(hparam_infos=hparams, metric_infos=metrics, **fields)
    return data_series(EXPERIMENT, wall_time, experiment=experiment)


def column(name: str, domain=None, **fields):
    """A hyperparameter of a summary; the domain is a pair (interval) or a list (discrete)."""
    info = api_pb2.HParamInfo(name=name, **fields)
    if isinstance(domain, tuple):
        info.domain_interval.min_value, info.domain_interval.max_value = domain
    elif domain is not None:
        info.domain_discrete.extend(domain)
    return info


def metric(tag: str, group: str = "", **fields):
    """A metric of a summary."""
    return api_pb2.MetricInfo(name=api_pb2.MetricName(group=group, tag=tag), **fields)


def last(tag: str, value: float, step: int = 1, wall_time: float = WALL_TIME):
    """A scalar series with one point."""
    return scalars(tag, [step], [value], [wall_time])


class HparamsClient:
    """One experiment: writes runs, and asks the API."""

    def __init__(self, api: ApiClient, experiment_id: str | None = None) -> None:
        self.api = api
        self.experiment_id = experiment_id or api.new_experiment()
        self._files = 0

    def write(self, run: str, *series) -> None:
        """Writes series of a run, as an event file of its own."""
        self._files += 1
        digest = hashlib.sha256(run.encode()).hexdigest()[:8]
        of = stream(run, f"events.out.tfevents.{self._files}.{digest}")
        self.api.write(self.experiment_id, segment(of, 0, 9, *series))

    def set_session(self, run: str, **fields) -> None:
        """Sets hyperparameters and other properties of a run's session."""
        path = f"/experiments/{self.experiment_id}/runs/hparams"
        self.api.request("PUT", path, params={"run": run}, json=fields).raise_for_status()

    def post(self, path: str, fields: Mapping[str, object] | bytes):
        """The response to a request, which may be any bytes."""
        path = f"/experiments/{self.experiment_id}/hparams/{path}"
        body = {"content": fields} if isinstance(fields, bytes) else {"json": fields}
        return self.api.request("POST", path, **body)

    def ask(self, path: str, **fields):
        """The answer to a request that must succeed."""
        answer = self.post(path, fields)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def refusal(self, path: str, **fields) -> tuple[int, str]:
        """The status and the detail of an answer."""
        answer = self.post(path, fields)
        return answer.status_code, answer.json()["detail"]

    def experiment(self, **fields):
        """The columns."""
        return self.ask("experiment", experimentName=self.experiment_id, **fields)

    def columns(self, **fields) -> dict[str, dict]:
        """The hyperparameters by name."""
        return {info["name"]: info for info in self.experiment(**fields)["hparamInfos"]}

    def metrics(self) -> list[tuple[str, str]]:
        """The (group, tag) of each metric."""
        names = [info["name"] for info in self.experiment()["metricInfos"]]
        return [(name["group"], name["tag"]) for name in names]

    def list(self, *columns, **fields):
        """The answer for session groups of all statuses, and these `colParams`."""
        request = {"allowedStatuses": STATUSES, "sliceSize": 1_000, "colParams": columns}
        return self.ask("session_groups", **(request | fields))

    def groups(self, *columns, **fields) -> dict[str, dict]:
        """The session groups by name, in their order."""
        listed = self.list(*columns, **fields)["sessionGroups"]
        return {group["name"]: group for group in listed}

    def names(self, *columns, **fields) -> list[str]:
        """The names of the session groups, in their order."""
        return list(self.groups(*columns, **fields))

    def sessions(self, **fields) -> dict[str, dict]:
        """The sessions by name."""
        listed = self.list(**fields)["sessionGroups"]
        return {each["name"]: each for group in listed for each in group["sessions"]}

    def statuses(self) -> dict[str, str]:
        """The status of each session, without its prefix."""
        return {
            name: session["status"].removeprefix("STATUS_").lower()
            for name, session in self.sessions().items()
        }


class HparamsPage(HparamsClient):
    """Client of HParams through the routes of the experiment's page."""

    def post(self, path: str, fields: Mapping[str, object] | bytes):
        url = f"/experiment/{self.experiment_id}/data/plugin/hparams/{path}"
        body = {"content": fields} if isinstance(fields, bytes) else {"json": fields}
        return self.api.client.post(url, headers=self.api.headers, **body)

    def refusal(self, path: str, **fields) -> tuple[int, str]:
        """The status and the text of an answer that must be plain."""
        answer = self.post(path, fields)
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        return answer.status_code, answer.text


def values(owner: Mapping) -> dict[tuple[str, str], float]:
    """The metric values of a session or a group by (group, tag)."""
    return {
        (value["name"]["group"], value["name"]["tag"]): float(value["value"])
        for value in owner["metricValues"]
    }


def is_nan(value: object) -> bool:
    """Whether this is a NaN as JSON has it."""
    return value == "NaN" or (isinstance(value, float) and math.isnan(value))
