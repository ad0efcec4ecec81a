"""HParams of files by real writers: our API and our page beside TensorBoard's own handlers on the
same files.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import json_format
from tensorboard import context
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.hparams import (
    api_pb2,
    backend_context,
    get_experiment,
    list_session_groups,
)

from support.batches import ApiClient
from support.hparams import STATUSES, HparamsClient, HparamsPage
from support.uploading import Reader, Uploader

FILES = Path(__file__).parent.parent / "data"
WRITERS = (
    "tensorboard_plugins/hparams",
    "pytorch/hparams",
    "tensorboardx/hparams",
    "hparams_calls/pytorch",
    "hparams_calls/tensorboardx",
    "keras_hparams",
    "guild",
)
AGGREGATIONS = ("AVG", "MEDIAN")


class StockHandlers:
    """TensorBoard's handlers over its own reader of a log directory."""

    def __init__(self, logdir: Path) -> None:
        multiplexer = EventMultiplexer()
        multiplexer.AddRunsFromDirectory(str(logdir))
        multiplexer.Reload()
        provider = MultiplexerDataProvider(multiplexer, str(logdir))
        self._context = backend_context.Context(TBContext(data_provider=provider))

    def experiment(self, **fields):
        request = json_format.ParseDict(fields, api_pb2.GetExperimentRequest())
        return self._run(get_experiment.Handler, request)

    def session_groups(self, **fields):
        request = json_format.ParseDict(fields, api_pb2.ListSessionGroupsRequest())
        return self._run(list_session_groups.Handler, request)

    def _run(self, handler, request):
        answer = handler(context.RequestContext(), self._context, "", request).run()
        return json_format.MessageToDict(answer, always_print_fields_with_no_presence=True)


@pytest.fixture(scope="module", params=WRITERS)
def uploaded(request, live_service, tmp_path_factory):
    """A client of the uploaded files, their id, and TensorBoard's handlers on them."""
    logdir = FILES / request.param
    token = live_service.new_owner()
    uploader = Uploader(live_service.url, token, tmp_path_factory.mktemp("uploader"))
    uploaded = uploader.run("--logdir", logdir, "--one-shot")
    assert uploaded.code == 0, uploaded.err
    reader = Reader(live_service.url, token)
    yield ApiClient(reader.http, token), uploaded.experiment_id, StockHandlers(logdir)
    reader.http.close()


@pytest.fixture(params=[HparamsClient, HparamsPage])
def both(request, uploaded):
    """The API or the page's routes, and TensorBoard's handlers."""
    api, experiment_id, stock = uploaded
    return request.param(api, experiment_id), stock


def without_computed(info):
    """A column without what TensorBoard leaves out of a declared one, or orders by chance."""
    discrete = sorted(map(str, info.get("domainDiscrete", ())))
    return {**info, "domainDiscrete": discrete, "differs": None}


def test_columns_of_real_files_are_those_of_tensorboard(both):
    ours, stock = both
    mine = ours.experiment()
    theirs = stock.experiment()
    assert set(mine) == set(theirs)
    declared = {info["name"]: without_computed(info) for info in theirs["hparamInfos"]}
    shown = {info["name"]: without_computed(info) for info in mine["hparamInfos"]}
    for name, info in declared.items():
        completed = {key: value for key, value in shown[name].items() if key in info}
        if info["domainDiscrete"] == [] and "domainInterval" not in info:
            completed |= {"domainDiscrete": [], "type": info["type"]}  # completed by us alone
        assert completed == info
    assert all(info in mine["metricInfos"] for info in theirs["metricInfos"])


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_groups_of_real_files_are_those_of_tensorboard(both, aggregation):
    ours, stock = both
    metric = ours.experiment()["metricInfos"][0]["name"]
    request = {
        "allowedStatuses": STATUSES,
        "sliceSize": 10,
        "aggregationType": f"AGGREGATION_{aggregation}",
        "aggregationMetric": metric,
        "colParams": [{"metric": metric, "order": "ORDER_DESC"}],
    }
    mine = ours.ask("session_groups", **request)
    if aggregation != "AVG" and not all(
        has_metric(group, metric) for group in mine["sessionGroups"]
    ):
        with pytest.raises((ValueError, IndexError)):  # TensorBoard needs a value in each group
            stock.session_groups(**request)
        return
    theirs = stock.session_groups(**request)
    assert theirs["totalSize"] > 0
    declared = [info["name"] for info in stock.experiment()["metricInfos"]]
    assert comparable(mine, declared) == comparable(theirs, declared)


def has_metric(group, metric):
    return metric in [value["name"] for value in group["metricValues"]]


def comparable(answer, declared):
    """The answer without undeclared metrics and NaN, which TensorBoard leaves out, and their order."""
    for group in answer["sessionGroups"]:
        values = group["hparams"].items()
        group["hparams"] = {name: value for name, value in values if value != "NaN"}
        for owner in (group, *group["sessions"]):
            shown = [value for value in owner["metricValues"] if value["name"] in declared]
            shown.sort(key=lambda value: (value["name"]["tag"], value["name"]["group"]))
            owner["metricValues"] = shown
    return answer
