"""The page's HParams routes, for both front ends, beside TensorBoard's own handlers over the same
store. H1 to H11 number the defects of TensorBoard 2.21.0: each test of one says what is answered
otherwise.
"""

from __future__ import annotations

import csv
import json
import math

import pytest
from werkzeug.test import EnvironBuilder

from support.batches import ApiClient
from support.hparams import (
    STATUSES,
    HparamsPage,
    column,
    end,
    last,
    metric,
    start,
    summary,
    values,
)
from support.stock_page import ask_stock
from tbservice import limits
from tbservice.auth import grants
from tbservice.db.database import Database
from tbservice.reading.source import ExperimentReader

ANGULAR_NAME = "defaultExperimentId"
INT32_MAX = 2**31 - 1
TABLE_SIZE = 1_000_000
"""The slice that the run table asks for."""


@pytest.fixture(scope="module")
def database(shared_settings):
    database = Database(shared_settings.database_url.get_secret_value(), 2)
    yield database
    database.close()


class PageClient(HparamsPage):
    """One experiment: writes runs, and asks the page's routes and TensorBoard's handlers."""

    def __init__(self, api: ApiClient, database: Database) -> None:
        super().__init__(api)
        self._database, self._owner = database, api.headers["Authorization"].split()[1]

    def reader(self):
        """The experiment as a source."""
        with self._database.transaction() as db:
            grant = grants.grant_read(db, self.experiment_id, self._owner)
        return ExperimentReader(grant, self._database, None)

    def stock(self, path, **fields):
        """Answer of the stock handler, or the status that it refuses with."""
        builder = EnvironBuilder(f"/data/plugin/hparams/{path}", method="POST", json=fields)
        status, body = ask_stock(self.reader(), builder)
        return json.loads(body) if status == 200 else status

    def stock_groups(self, *columns, **fields):
        """The stock session groups by name."""
        request = {"allowedStatuses": STATUSES, "sliceSize": 1_000, "colParams": columns}
        answer = self.stock("session_groups", **(request | fields))
        if isinstance(answer, int):
            return answer
        return {group["name"]: group for group in answer["sessionGroups"]}

    def run_table(self):
        """The rows that the Time Series dashboard keeps, by run, with its own requests and rule."""
        request = {"experimentName": ANGULAR_NAME, "hparamsLimit": 1_000, "includeMetrics": False}
        infos = self.ask("experiment", **request)["hparamInfos"]
        groups = self.groups(
            *({"hparam": info["name"], "includeInResult": True} for info in infos),
            experimentName=ANGULAR_NAME,
            sliceSize=TABLE_SIZE,
            includeMetrics=False,
        )
        return {
            session["name"]: group["hparams"]
            for group in groups.values()
            for session in group["sessions"]
            if all(_passes(info, group["hparams"].get(info["name"])) for info in infos)
        }

    def download(self, layout, visibility, *columns, **fields):
        """The answer to a download with these columns and a flag for each."""
        request = {"allowedStatuses": STATUSES, "sliceSize": 1_000, "colParams": columns}
        return self.api.client.get(
            f"/experiment/{self.experiment_id}/data/plugin/hparams/download_data",
            params={
                "format": layout,
                "columnsVisibility": json.dumps(visibility),
                "request": json.dumps(request | fields),
            },
            headers=self.api.headers,
        )


def _passes(info, value):
    """Whether the run table's default filter keeps a value: `matchFilter` of its script."""
    if value is None:
        return True
    if "domainInterval" in info:
        bounds = {name: float(bound) for name, bound in info["domainInterval"].items()}
        is_number = isinstance(value, float)
        return is_number and bounds["minValue"] <= value <= bounds["maxValue"]
    return (type(value), value) in [
        (type(entry), entry) for entry in info.get("domainDiscrete", ())
    ]


@pytest.fixture
def page(shared_api, database):
    """An experiment of this test's own."""
    return PageClient(shared_api, database)


# ---- as the stock handlers


def test_page_answers_sound_sessions_as_stock(page):
    page.write(
        ".",
        summary(
            [column("lr", (0.0, 1.0), type=3, display_name="Rate")], [metric("loss")], name="resnet"
        ),
    )
    for number, kind in enumerate(("adam", "sgd")):
        of = start(
            {"lr": 0.25 * number, "kind": kind}, group_name="g", model_uri="m", start_time_secs=5
        )
        page.write(f"s{number}", of, end(end_time=7.0), last("loss", number, 3))
    page.write("alone", start({"lr": 0.5}), last("loss", 4.0))
    rate = {"hparam": "lr", "order": "ORDER_DESC", "filterInterval": {"maxValue": 0.4}}
    for columns in ((), (rate,), ({"metric": {"tag": "loss"}, "order": "ORDER_ASC"},)):
        shown, expected = page.groups(*columns), page.stock_groups(*columns)
        for group in (*shown.values(), *expected.values()):  # H10: those on which they disagree
            group["hparams"] = {} if group["name"] == "g" else group["hparams"]
        assert list(shown.items()) == list(expected.items())
    evals = {"sessionName": "s1", "metricName": {"tag": "loss"}}
    assert page.ask("metric_evals", **evals) == page.stock("metric_evals", **evals)
    stock = page.stock("experiment")
    assert {**page.columns()["lr"], "differs": False} == stock["hparamInfos"][0]
    assert page.ask("experiment")["name"] == stock["name"] == "resnet"


def test_page_answers_any_experiment_name_for_its_own(page):
    page.write("run", start({"x": 1}), last("loss", 1.0))
    for name in ("", ANGULAR_NAME, "another"):
        named = {"experimentName": name}
        assert len(page.ask("experiment", **named)["hparamInfos"]) == 1
        assert page.names(**named) == ["run"]
        evals = {"sessionName": "run", "metricName": {"tag": "loss"}, **named}
        assert len(page.ask("metric_evals", **evals)) == 1


# ---- otherwise than the stock handlers


def test_page_unites_declared_and_logged_columns(page):
    """H1, H4: what a summary declares hides everything else in TensorBoard; an empty one, all."""
    page.write("schema", summary([column("lr", (0.0, 1.0), type=3)], [metric("loss")]))
    page.write("run", start({"lr": 0.5, "late": 1}), last("loss", 1.0), last("more", 2.0))
    assert list(page.columns()) == ["late", "lr"]
    assert page.metrics() == [("", "loss"), ("", "more")]
    assert len(page.stock("experiment")["hparamInfos"]) == 1
    assert set(values(page.groups()["run"])) == {("", "loss"), ("", "more")}


@pytest.mark.parametrize(
    ("filtered", "text"),
    [
        (
            {"hparam": "word", "filterRegexp": "("},
            "col_params[0].filter_regexp: not a valid RE2 regular expression: missing )",
        ),
        ({"hparam": "word", "filterInterval": {"minValue": 1}}, "col_params[0].filter_interval: "),
    ],
)
def test_page_refuses_filter_of_wrong_type_in_plain_text(page, filtered, text):
    """H7: TensorBoard fails on the first one, and has a page of HTML for the others."""
    page.write("run", start({"word": "x", "rate": 1.0}), last("loss", 1.0))
    fields = {"allowedStatuses": STATUSES, "sliceSize": 9, "colParams": [filtered]}
    status, shown = page.refusal("session_groups", **fields)
    assert (status, shown.startswith(text), shown.count("\n")) == (400, True, 1)
    assert "<" not in shown


def test_page_refuses_over_limit_with_400(page, monkeypatch):
    """The run table would never ask again after another status."""
    page.write("run", start({"x": 1, "y": 2}))
    monkeypatch.setattr(limits, "HPARAMS_RESPONSE_ITEMS_MAX", 1)
    fields = {"allowedStatuses": STATUSES, "sliceSize": 9}
    status, text = page.refusal("session_groups", **fields)
    assert (status, "hparams_response_items_max" in text) == (400, True)


def test_page_sorts_and_selects_where_stock_fails(page):
    """H8: steps over int32, a group without the metric, mixed types in one column."""
    page.write("large", start({"odd": "x"}), last("loss", 0.5, 2**40))
    page.write("other", start({"odd": 1.0}), last("accuracy", 0.5))
    page.write("flag", start({"odd": True}), last("accuracy", 0.25))
    mixed = {"hparam": "odd", "order": "ORDER_ASC"}
    assert page.names(mixed) == ["flag", "other", "large"]
    assert page.groups()["large"]["metricValues"][0]["trainingStep"] == INT32_MAX
    for aggregation in ("MIN", "MAX", "MEDIAN"):
        fields = {
            "aggregationType": f"AGGREGATION_{aggregation}",
            "aggregationMetric": {"tag": "loss"},
        }
        assert len(page.groups(**fields)) == 3
        assert page.stock_groups(**fields) == 400
    assert page.stock_groups() == page.stock_groups(mixed) == 400


def test_page_takes_values_that_are_not_finite_as_missing(page):
    """TensorBoard does the same; in the API they are values."""
    for run, value in (("a", math.nan), ("b", 1.0), ("c", math.inf), ("d", 2.0)):
        page.write(run, start({"lr": value}))
    many = {"hparam": "lr", "filterInterval": {"minValue": 0, "maxValue": 1.5}}
    few = {**many, "excludeMissingValues": True}
    order = {"hparam": "lr", "order": "ORDER_DESC", "missingValuesFirst": True}
    for wanted, expected in ((many, "abc"), (few, "b"), (order, "acdb")):
        assert page.names(wanted) == list(expected)
        assert list(page.stock_groups(wanted)) == list(expected)


# ---- the run table of Time Series


def test_run_table_keeps_every_session(page):
    """It hides those with a value outside of the domain, which TensorBoard's are not all in."""
    declared = [
        column("lr", (0.1, 0.2), type=3),
        column("width", [8.0, 16.0], type=3),
        column("kind", ["adam"], type=1),
        column("flag", [True], type=2),
        column("text", (0.0, 1.0), type=3),
        column("free"),
    ]
    page.write("schema", summary(declared))
    rows = {
        "declared": {"lr": 0.1, "width": 8.0, "kind": "adam", "flag": True},
        "outside": {"lr": 0.9, "width": 64.0, "kind": "sgd", "flag": False},
        "typed": {"text": "auto", "odd": "x"},
        "mixed": {"text": 0.5, "odd": 1.0},
        "bool": {"odd": True, "free": "anything"},
        "none": {},
    }
    for run, hparams in rows.items():
        page.write(run, start(hparams))
    page.write("nan", start({"lr": math.nan, "free": math.inf, "odd": 2.0}))
    assert page.run_table() == {**rows, "nan": {"odd": 2.0}}
    columns = page.columns()
    assert columns["lr"]["domainInterval"] == {"minValue": 0.1, "maxValue": 0.9}
    assert columns["width"]["domainDiscrete"] == [8.0, 16.0, 64.0]
    assert columns["text"]["type"] == columns["odd"]["type"] == "DATA_TYPE_STRING"


def test_run_table_has_first_columns_that_fit_limit(page, monkeypatch):
    """It shows no hyperparameter of any run if its request is refused."""
    for number in range(4):
        group = "together" if number < 2 else ""
        values = {"z": number // 2, "a": 1, "b": 2, f"late {number // 3}": True}
        page.write(f"run{number}", start(values, group_name=group))
    complete = page.run_table()
    assert complete["run3"] == {"z": 1.0, "a": 1.0, "b": 2.0, "late 1": True}

    for limit, shown in ((9, {"z", "a", "b"}), (8, {"z", "a"}), (6, {"z", "a"}), (5, {"z"})):
        monkeypatch.setattr(limits, "HPARAMS_RESPONSE_ITEMS_MAX", limit)
        assert page.run_table() == {
            run: {name: value for name, value in row.items() if name in shown}
            for run, row in complete.items()
        }
        assert list(page.columns()) == ["z", "a", "b", "late 0", "late 1"]  # of the dashboard
    monkeypatch.undo()
    monkeypatch.setattr(limits, "HPARAMS_COLUMN_ITEMS_MAX", 2)
    assert page.run_table()["run3"] == {"z": 1.0, "a": 1.0}


def test_run_table_has_hparams_of_comparison(page, shared_application, database):
    other = PageClient(page.api, database)
    page.write("schema", summary([column("lr", (0.0, 0.5), type=3)]))
    for client, rate in ((page, 0.1), (other, 0.9)):
        client.write("run", start({"lr": rate}, group_name="g"))
    both = PageClient(page.api, database)
    both.experiment_id = f"a:{page.experiment_id},b:{other.experiment_id}"
    path = f"/compare/{both.experiment_id}/data/plugin/hparams"
    both.post = lambda route, fields: shared_application.post(
        f"{path}/{route}", json=fields, headers=page.api.headers
    )
    assert both.run_table() == {"a/run": {"lr": 0.1}, "b/run": {"lr": 0.9}}
    assert both.names() == ["a/g", "b/g"]


def test_page_filters_columns_as_it_describes_them(page):
    """The dashboard asks for an expression if a column has more than nine values of strings."""
    page.write("schema", summary([column("rate", type=3), column("flag", type=2)]))
    for number in range(10):
        rate = float(number) if number else "auto"
        page.write(f"run {number}", start({"rate": rate, "flag": number}))
    for name, pattern, run in (("rate", "auto", "run 0"), ("flag", "^7", "run 7")):
        assert page.columns()[name]["type"] == "DATA_TYPE_STRING"
        assert len(page.columns()[name]["domainDiscrete"]) == 10
        assert page.names({"hparam": name, "filterRegexp": pattern}) == [run]


# ---- downloads


LR, WORD, LOSS, ACCURACY = (
    {"hparam": "lr"},
    {"hparam": "word"},
    {"metric": {"tag": "loss"}},
    {"metric": {"group": "eval", "tag": "accuracy"}},
)


@pytest.fixture
def table(page):
    declared = summary(
        [column("lr", type=3, display_name="Rate")], [metric("loss", display_name="Loss")]
    )
    page.write("schema", declared)
    page.write("a", start({"lr": 1e-4, "word": "50%_x"}), last("loss", 0.5), last("x", 1.0))
    page.write("a/eval", last("accuracy", math.nan))
    page.write("b", start({"lr": 2.0, "flag": True}), last("loss", -math.inf))
    return page


def test_download_has_shown_columns_in_order(table):
    answer = table.download("csv", [True, False, True, True], LR, WORD, LOSS, ACCURACY)
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert list(csv.reader(answer.text.splitlines())) == [
        ["Rate", "Loss", "accuracy"],
        ["0.0001", "0.5", "nan"],
        ["2.0", "-inf", ""],
    ]
    everything = table.download("csv", [True] * 9).text.splitlines()[0]
    assert everything == "Rate,flag,word,Loss,accuracy,x"


def test_download_keeps_columns_when_others_appear(table):
    """In TensorBoard the flags of the page are then those of other columns."""
    for number, run in enumerate("cd"):
        table.write(run, start({"aaa": number}))
    assert next(iter(table.columns())) == "aaa"
    text = table.download("csv", [True], LR).text
    assert text.splitlines() == ["Rate", "0.0001", "2.0", '""', '""']


def test_download_filters_sorts_and_slices(table):
    falling = {**LR, "order": "ORDER_DESC"}
    assert table.download("csv", [True], falling).text.split() == ["Rate", "2.0", "0.0001"]
    assert table.download("csv", [True], falling, sliceSize=1).text.split() == ["Rate", "2.0"]
    few = {**LR, "filterInterval": {"maxValue": 1.0}}
    assert table.download("csv", [True], few).text.split() == ["Rate", "0.0001"]


def test_download_as_json(table):
    answer = table.download("json", [True] * 4, LR, {"hparam": "flag"}, LOSS, ACCURACY)
    assert answer.json() == {
        "header": ["Rate", "flag", "Loss", "accuracy"],
        "rows": [[1e-4, "", 0.5, "NaN"], [2.0, True, "-Infinity", None]],
    }


def test_download_as_latex_escapes_users_text(table):
    table.write("c", start({"word": "\\input{/etc/passwd} & $x^2$ # ~\n"}))
    answer = table.download("latex", [True] * 4, LR, WORD, LOSS, ACCURACY)
    assert answer.headers["content-type"] == "application/x-latex"
    assert answer.text.split("\n") == [
        r"\begin{table}[tbp]",
        r"\begin{tabular}{llll}",
        r"Rate & word & Loss & accuracy \\ \hline",
        r"$0.0001$ & 50\%\_x & $0.5$ & $\mathrm{NaN}$ \\",
        r"$2$ &  & $-\infty$ & - \\",
        r" & \textbackslash{}input\{/etc/passwd\} \& \$x\textasciicircum{}2\$ \# \textasciitilde{}  & - & - \\",
        r"\hline",
        r"\end{tabular}",
        r"\end{table}",
        "",
    ]


def test_download_refuses_in_plain_text(table):
    for layout, visibility in (("xml", [True]), ("csv", 7)):
        answer = table.download(layout, visibility, LR)
        assert (answer.status_code, answer.headers["content-type"]) == (
            400,
            "text/plain; charset=utf-8",
        )
