"""Native routes compared with TensorBoard's own handlers: the same requests over the same store."""

from __future__ import annotations

import itertools
import json
import math
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import httpx2
import numpy as np
import pytest
from tensorboard.plugins.hparams import summary_v2
from werkzeug.test import EnvironBuilder

from support import without_tensorflow
from support.batches import ApiClient, images, metadata, scalars, segment, stream
from support.event_files import PNG
from support.postgres_faults import postgres_faults
from support.servers import http_client
from support.servers import live_service as start_service
from support.stock_page import ask_stock
from support.uploading import Uploader
from tbservice.auth import grants
from tbservice.db.database import Database
from tbservice.local.demo.logdir import write_demo_logdir
from tbservice.objects.object_store import ObjectStore
from tbservice.reading.source import ExperimentReader
from tbservice.tensorboard import stock_application
from tbservice.tensorboard.native import number_columns, routes
from tbwire import wire_pb2
from tbwire.tensorboard_pb2 import SummaryMetadata

TEST_DATA = Path(__file__).parent.parent / "data"

HOSTILE = (
    '"quoted\\" \\u0041',
    "<script>alert(1)</script>",
    "%b %s %(x)d {0}",
    "línea\nnueva\u2028separator \U0001f600",
    "a/../../b?x=1&y=2#z",
    "\x01\x7f",
    "é" * 5_000,
)
"""Names of runs and tags that are text to a JSON writer, an HTML page, a format string or a path.
"""

NUMBERS = (
    0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, -2.2250738585072014e-308, 1.7976931348623157e308,
    0.1, 1 / 3, 1e16, 123456789012345680.0, 1e22, 1e-7, float(np.float32(0.1)), 2.0**53 + 2,
)  # fmt: skip
STEPS = (-(2**63), -1, 0, 1, 2**31, 2**53 + 1, 2**63 - 2, 2**63 - 1)


ALL_SESSIONS = json.dumps(
    {
        "allowedStatuses": [0, 1, 2, 3],
        "colParams": [],
        "startIndex": 0,
        "sliceSize": 1000000,
        "aggregationType": 1,
    }
)


@dataclass
class Both:
    """One experiment, read through our service and through TensorBoard's application in this
    process.
    """

    client: httpx2.Client
    reader: ExperimentReader
    owner: str

    def ours(self, builder):
        """Return status and body of the running service's answer."""
        environ = builder.get_environ()
        path = f"/experiment/{self.reader.grant.experiment_id}{builder.path}"
        headers = {
            "Authorization": f"Bearer {self.owner}",
            "Content-Type": builder.content_type or "",
        }
        body = environ["wsgi.input"].read()
        answer = self.client.request(
            builder.method, f"{path}?{environ['QUERY_STRING']}", content=body, headers=headers
        )
        return answer.status_code, answer.content

    def stock(self, builder):
        """Answer of the stock handler, in the same form."""
        return ask_stock(self.reader, builder)

    def check(self, path, method="GET", **options):
        """Ask both and compare; return the decoded answer, or None if both refused with the same
        status.
        """
        ours = self.ours(EnvironBuilder(path, method=method, **options))
        theirs = self.stock(EnvironBuilder(path, method=method, **options))
        assert ours[0] == theirs[0], (path, options, ours, theirs[1][:300])
        if ours[0] != httpx2.codes.OK:
            return None
        if options.get("query_string", {}).get("format") == "csv":
            assert ours[1] == theirs[1]
            return ours[1]
        decoded, expected = (
            json.loads(body, parse_constant=_refuse) for body in (ours[1], theirs[1])
        )
        assert _exact(decoded) == _exact(expected), (path, options)
        return decoded

    def cards(self, *asked):
        """The cards of the Time Series dashboard for these requests."""
        path = "/data/plugin/timeseries/timeSeries"
        return self.check(path, "POST", data={"requests": json.dumps(asked)})


def _refuse(constant):
    raise ValueError(f"{constant} is no JSON")


def _exact(value):
    """Compare numbers by type and text (1 is not 1.0, 0.0 is not -0.0), and objects without the
    order of members.
    """
    if isinstance(value, dict):
        return {name: _exact(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_exact(item) for item in value]
    return repr(value) if isinstance(value, float) else value


@pytest.fixture(scope="module")
def service(shared_settings, tmp_path_factory):
    """A service over settings that this process has too, in which TensorFlow cannot be imported."""
    log = tmp_path_factory.mktemp("service") / "service.log"
    with start_service(shared_settings, log, program=[without_tensorflow.__file__]) as live:
        yield live


@pytest.fixture(scope="module")
def both(shared_settings, service, tmp_path_factory):
    """An experiment with the demo, every real file of tests/data, and series that no writer makes."""
    logdir = tmp_path_factory.mktemp("logdir")
    write_demo_logdir(logdir / "demo")
    shutil.copytree(TEST_DATA, logdir / "real", ignore=shutil.ignore_patterns("*.py", "*.md"))
    owner = service.new_owner()
    uploaded = Uploader(service.url, owner, tmp_path_factory.mktemp("uploader")).run(
        "--logdir", logdir, "--one-shot"
    )
    experiment = uploaded.experiment_id
    database, objects = Database(service.database_url, 5), ObjectStore(shared_settings)
    with http_client(service.url) as client:
        ApiClient(client, owner).write(experiment, *hostile_segments())
        with database.transaction() as db:
            grant = grants.grant_read(db, experiment, owner)
        yield Both(client, ExperimentReader(grant, database, objects), owner)
    database.close()
    objects.close()


def hostile_segments():
    """Return segments with hostile runs and tags, extreme numbers, metadata that differs between
    runs, and odd tensors.
    """
    for number, name in enumerate(HOSTILE):
        series = [
            scalars(
                tag,
                range(len(NUMBERS)),
                NUMBERS,
                summary_metadata=described(f"# of {number}\n{name}", name),
            )
            for tag in (name, "shared")
        ]
        yield segment(
            stream(name, f"file.{number}"),
            0,
            9,
            *series,
            images(name + "i", [1, 2], [[b"1", b"2", PNG]] * 2),
        )
    later = metadata(content=b"\x08\x05")  # version 5
    odd = [
        scalars("steps", STEPS),
        scalars("later", [1], summary_metadata=later),
        histogram(
            "bfloat16", 14, [1, 3], (np.array([1, 2, 3.5], "<f4").view("<u4") >> 16).astype("<u2")
        ),
        histogram("empty", 2, [0, 3], np.empty(0)),
        histogram("not finite", 2, [2, 3], np.array([math.nan, math.inf, 1, -math.inf, 0, 2])),
        histogram("one column", 2, [3], np.array([1.0, 2, 3])),
        images(
            "uneven", [1, 2, 3], [[b"1", b"2"], [b"1", b"2", PNG], [b"1", b"2", PNG, PNG + b"x"]]
        ),
    ]
    yield segment(stream("odd"), 0, 9, *odd)
    yield segment(stream("only later"), 0, 9, scalars("later", [1], summary_metadata=later))


def described(description, display_name=""):
    """A scalar's summary metadata with a description."""
    message = SummaryMetadata.FromString(metadata(description=description))
    message.display_name = display_name
    return message.SerializeToString()


def session(hparams):
    """Return the series that makes a run a session with these hyperparameters."""
    content = summary_v2.hparams_pb(hparams).value[0].metadata.plugin_data.content
    points = histogram("", 1, [], np.empty(1, "<f4")).tensors
    tag = "_hparams_/session_start_info"
    return wire_pb2.Series(
        tag=tag, summary_metadata=metadata("hparams", 2, content=content), tensors=points
    )


def histogram(tag, dtype, shape, elements):
    """A histogram series of one point, whatever its tensor."""
    points = wire_pb2.TensorPoints(
        steps=np.array([3], "<i8").tobytes(),
        wall_times=np.array([5.0], "<f8").tobytes(),
        tensors=[wire_pb2.Tensor(dtype=dtype, shape=shape, data=elements.tobytes())],
    )
    return wire_pb2.Series(tag=tag, summary_metadata=metadata("histograms", 2), tensors=points)


def test_listings_are_stock_ones(both):
    for path in (
        "/data/plugins_listing",
        "/data/plugins_listing?experimentalPlugin=x",
        "/data/plugin/scalars/tags/",
    ):
        assert both.check(path)
    shown = both.check("/data/plugin/scalars/tags")
    assert shown["only later"] == {}
    assert "later" not in shown["odd"]
    assert set(HOSTILE) < shown.keys()
    tags = both.check("/data/plugin/timeseries/tags")
    assert "Multiple descriptions" in tags["scalars"]["tagDescriptions"]["shared"]
    assert "<script" not in "".join(tags["scalars"]["tagDescriptions"].values())
    assert len(tags["histograms"]["runTagInfo"]) > 10
    assert len(tags["images"]["tagRunSampledInfo"]) > 10
    ours, theirs = both.ours(EnvironBuilder("/data/runs")), both.stock(EnvironBuilder("/data/runs"))
    assert sorted(json.loads(ours[1])) == sorted(
        json.loads(theirs[1])
    )  # ours are in the order they came in


def test_every_point_of_every_card_is_stock_handlers(both):
    tags = both.check("/data/plugin/timeseries/tags")
    runs_of = {tag: run for run, names in tags["scalars"]["runTagInfo"].items() for tag in names}
    points = 0
    for tag, run in runs_of.items():
        (card,) = both.cards({"plugin": "scalars", "tag": tag})
        (alone,) = both.cards({"plugin": "scalars", "tag": tag, "run": run})
        assert card["runToSeries"][run] == alone["runToSeries"][run]
        points += sum(map(len, card["runToSeries"].values()))
    assert points > 5_000
    for run, names in tags["histograms"]["runTagInfo"].items():
        for tag in set(names) - {"one column"}:
            (card,) = both.cards({"plugin": "histograms", "tag": tag, "run": run})
            assert card["runToSeries"][run]
    for tag, of_runs in tags["images"]["tagRunSampledInfo"].items():
        for run, counts in of_runs.items():
            for sample in range(counts["maxSamplesPerStep"] + 1):
                (card,) = both.cards({"plugin": "images", "tag": tag, "run": run, "sample": sample})
                assert bool(card["runToSeries"]) == (sample < counts["maxSamplesPerStep"])


def test_scalars_dashboard_gets_stock_points(both):
    tags = both.check("/data/plugin/scalars/tags")
    multirun = "/data/plugin/scalars/scalars_multirun"
    for tag in {tag for of_run in tags.values() for tag in of_run}:
        assert both.check(multirun, "POST", data={"tag": tag, "runs": list(tags)})
    values = both.check(
        multirun, "POST", data={"tag": "shared", "runs": [HOSTILE[0], "no such run"]}
    )
    assert [type(value) for _, _, value in values[HOSTILE[0]]] == [
        str if not math.isfinite(n) else float for n in NUMBERS
    ]
    assert both.check(multirun, "POST", data={"tag": "shared"}) == {}
    for run, tag in [("odd", "steps"), *itertools.product(HOSTILE, ["shared"])]:
        for extra in ({}, {"format": "json"}, {"format": "csv"}):
            query = {"run": run, "tag": tag, **extra}
            assert len(both.check("/data/plugin/scalars/scalars", query_string=query)) >= len(STEPS)


def test_hparams_route_speaks_http_as_stock_one(both):
    """Its content: test_hparams_page.py."""
    groups = "/data/plugin/hparams/session_groups"
    by_method = [
        both.ours(EnvironBuilder(groups, method="POST", data=ALL_SESSIONS)),
        both.ours(EnvironBuilder(groups, query_string={"request": ALL_SESSIONS})),
    ]
    assert by_method[0] == by_method[1]
    groups_shown = json.loads(by_method[0][1])["sessionGroups"]
    theirs = both.stock(EnvironBuilder(groups, method="POST", data=ALL_SESSIONS))
    expected = json.loads(theirs[1])["sessionGroups"]
    assert [(group["name"], group["hparams"]) for group in groups_shown] == [
        (group["name"], group["hparams"]) for group in expected
    ]
    assert len(groups_shown) > 4
    session = next(
        session for group in groups_shown for session in group["sessions"] if session["name"]
    )
    metric = session["metricValues"][0]["name"]
    asked = json.dumps({"sessionName": session["name"], "metricName": metric})
    evals = "/data/plugin/hparams/metric_evals"
    assert both.check(evals, "POST", data=asked)
    for missing in ({"tag": "none"}, {"group": "none", "tag": metric["tag"]}):
        asked = json.dumps({"sessionName": session["name"], "metricName": missing})
        assert both.check(evals, "POST", data=asked) is None
    refused = ("", "{", '{"no": 1}', '{"sliceSize": "x"}', '{"colParams": [{}], "sliceSize": 9}')
    for body, path in itertools.product(
        refused, (groups, "/data/plugin/hparams/experiment", evals)
    ):
        assert both.check(path, "POST", data=body) is None, (path, body)
    download = "/data/plugin/hparams/download_data"
    good = {"format": "csv", "columnsVisibility": "[]", "request": ALL_SESSIONS}
    assert both.check(download, query_string=good)
    for bad in (
        {"format": "x"},
        {"columnsVisibility": "x"},
        {"columnsVisibility": "7"},
        {"request": "x"},
    ):
        assert both.check(download, query_string=good | bad) is None, bad


def test_native_route_refuses_as_stock_handlers_do(both):
    series, multirun = "/data/plugin/timeseries/timeSeries", "/data/plugin/scalars/scalars_multirun"
    refused = (
        (series, "POST", {}),
        (series, "GET", {}),
        (series, "POST", {"data": {"requests": ""}}),
        (series, "POST", {"data": "requests=[]", "content_type": "application/json"}),
        *(
            (series, "POST", {"data": {"requests": text}})
            for text in ("{", "7", "null", "[7]", '["a"]', "[" * 50_000)
        ),
        (series, "POST", {"data": {"requests": "x" * 600_000}}),
        (multirun, "GET", {}),
        (multirun, "POST", {}),
        (multirun, "POST", {"data": {"tag": ["a", "b"], "runs": ["odd"]}}),
        ("/data/plugin/scalars/scalars", "GET", {}),
        ("/data/plugin/scalars/scalars?run=odd", "GET", {}),
        ("/data/plugin/scalars/scalars?tag=steps", "GET", {}),
        ("/data/plugin/scalars/scalars?run=odd&tag=none", "GET", {}),
        ("/data/plugin/scalars/scalars?run=none&tag=steps", "GET", {}),
    )
    for path, method, options in refused:
        assert both.check(path, method, **options) is None, (path, options)
    for asked in (
        {"plugin": "scalars", "tag": "steps", "run": 5},
        {"plugin": "scalars", "tag": "steps", "run": ["odd"]},
        {"plugin": "scalars", "tag": "\ud800"},
        {"plugin": "images", "tag": "uneven", "run": "odd", "sample": -9},
        {"plugin": "histograms", "tag": "one column", "run": "odd"},
    ):
        assert both.cards(asked) is None, asked


def test_card_that_fails_leaves_others_beside_it(both):
    answers = both.cards(
        {},
        {"plugin": "scalars", "tag": "steps"},
        {"plugin": "scalars", "tag": "no such tag"},
        {"plugin": "scalars", "tag": "steps", "run": "no such run"},
        {"plugin": "scalars", "tag": "steps", "run": "", "sample": True},
        {"plugin": "text", "tag": "\ud800 lone", "run": "x"},
        {"plugin": {"a": [math.nan]}, "tag": "steps"},
        {"plugin": "histograms", "tag": "empty"},
        {"plugin": "images", "tag": "uneven", "run": "odd", "sample": -1},
    )
    assert ["error" in answer for answer in answers] == [
        True,
        False,
        False,
        False,
        False,
        True,
        True,
        True,
        False,
    ]
    assert answers[2]["runToSeries"] == {}
    assert both.check("/data/plugin/timeseries/timeSeries", "POST", data={"requests": "[]"}) == []
    query = {"requests": json.dumps([{"plugin": "scalars", "tag": "steps"}])}
    assert both.check("/data/plugin/timeseries/timeSeries", query_string=query)[0] == answers[1]


def test_numbers_are_written_bit_for_bit():
    random = np.random.default_rng(0)
    bits = random.integers(0, 2**63, 20_000).astype("<u8") << np.uint64(1)
    values = np.concatenate(
        [bits.view("<f8"), NUMBERS, np.float32(random.normal(size=1000)).astype(float)]
    )
    steps = random.integers(-(2**63), 2**63 - 1, len(values))
    written = json.loads(number_columns.format_rows(b"[%b,%b]", values, steps))
    known = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
    read = np.array([known.get(value, value) for value, _ in written])
    assert [step for _, step in written] == steps.tolist()
    is_number = ~np.isnan(values)
    assert np.array_equal(read[is_number].view("<u8"), values[is_number].view("<u8"))
    assert np.isnan(read[~is_number]).all()
    assert number_columns.format_rows(b"[%b]", np.empty(0)) == b"[]"


def test_no_dashboard_imports_tensorflow(both, service):
    asked = [
        f"/data/plugin/{plugin}/tags"
        for plugin in ("audio", "distributions", "histograms", "mesh", "pr_curves", "text")
    ]
    asked += [
        "/data/plugin/graphs/info",
        "/data/plugin/custom_scalars/layout",
        "/data/plugins_listing",
    ]
    asked += ["/data/plugin/text/text?run=demo/adam&tag=about", "/data/plugin/projector/runs"]
    for path in asked:
        assert both.ours(EnvironBuilder(path))[0] in {200, 404}, path
    assert both.check("/data/plugin/custom_scalars/layout")
    for name in ("experiment", "session_groups"):
        assert (
            both.ours(EnvironBuilder(f"/data/plugin/hparams/{name}", method="POST", data="{}"))[0]
            == httpx2.codes.OK
        )
    assert service.process.poll() is None


def ask(reader, path, method="GET", **options):
    """Send a request to an application in this process."""
    environ = EnvironBuilder(path, method=method, **options).get_environ()
    stock_application.bind_source(environ, reader)
    answer = routes.dispatch(environ, is_process=True)
    assert answer.status_code == httpx2.codes.OK, answer.body
    return json.loads(answer.body)


def test_number_of_queries_does_not_grow_with_runs_and_tags(both, service):
    """Counted on the wire to PostgreSQL, for two runs of two tags and for twelve runs of nine."""
    api = ApiClient(both.client, both.owner)
    experiment = api.new_experiment()
    card = {"requests": json.dumps([{"plugin": "scalars", "tag": "t0"}])}
    runs = [f"r{number}" for number in range(12)]
    asked = {
        "/data/plugins_listing": {},
        "/data/plugin/scalars/tags": {},
        "/data/plugin/timeseries/tags": {},
        "/data/plugin/timeseries/timeSeries": {"method": "POST", "data": card},
        "/data/plugin/scalars/scalars_multirun": {
            "method": "POST",
            "data": {"tag": "t0", "runs": runs},
        },
        "/data/plugin/hparams/experiment": {"method": "POST", "data": "{}"},
        "/data/plugin/hparams/session_groups": {"method": "POST", "data": ALL_SESSIONS},
    }
    counts = []
    with postgres_faults(service.database_url) as proxy:
        database = Database(proxy.url, 1)
        for run_count, tag_count in ((2, 2), (12, 9)):
            tags = [f"t{number}" for number in range(tag_count)]
            for run in runs[:run_count]:
                steps = range(
                    tag_count * 100
                )  # the second time there are more, and all of the first are there again
                begin, end = (0, 9) if tag_count == 2 else (9, 18)
                series = [
                    *(scalars(tag, steps) for tag in tags),
                    images("photo", [1], [[b"1", b"2", PNG]]),
                ]
                api.write(
                    experiment,
                    segment(stream(run, f"{run}.{begin}"), 0, end, *series, session({"lr": 0.5})),
                )
            grant = replace(both.reader.grant, experiment_id=experiment)
            counts.append({})
            for path, options in asked.items():
                for _ in range(
                    9
                ):  # until every statement is prepared, and what is read once has been
                    content = ask(
                        ExperimentReader(grant, database, both.reader.objects), path, **options
                    )
                proxy.disarm()
                assert (
                    ask(ExperimentReader(grant, database, both.reader.objects), path, **options)
                    == content
                )
                counts[-1][path] = len(proxy.statements)
                assert "t0" in json.dumps(content) or "session" not in path
        database.close()
    assert counts[0] == counts[1]
    assert max(counts[0].values()) <= 24
