"""A finished sweep of Katib in the HParams dashboard: hyperparameters, metrics, status, filters."""

from __future__ import annotations

import re
from contextlib import closing

import pytest
from playwright.sync_api import expect

from support.batches import ApiClient
from support.browser_pages import open_tab, share_link, shoot
from support.katib import KatibClient, log
from support.uploading import Reader
from tbservice.auth.grants import grant_katib
from tbservice.db.database import Database
from tbservice.ingest.door import Door
from tbservice.ingest.service import Ingest
from tbservice.katib import trials
from tbservice.katib.katib_pb2 import Experiment, GetSuggestionsReply, Trial, TrialStatus
from tbservice.objects.object_store import ObjectStore

SWEEP = [("0.125", "adam", 0.5), ("0.25", "sgd", 0.75), ("0.375", "adam", 0.875)]
"""Rate, optimizer and the accuracy that is reached; the third trial is the best."""


@pytest.fixture
def katib(live_service, uploader):
    """Katib's calls, in this process, on the database of the service."""
    settings = live_service.settings
    database = Database(settings.database_url.get_secret_value(), 2)
    with closing(ObjectStore(settings)) as objects:
        with database.transaction() as db:
            grant = grant_katib(db, uploader.token)
        yield KatibClient(Ingest(objects, Door(database, [])), grant)
    database.close()


def make_experiment():
    made = Experiment(name="sweep")
    made.spec.algorithm.algorithm_name = "random"
    made.spec.objective.objective_metric_name = "accuracy"
    made.spec.objective.type = 2
    parameters = made.spec.parameter_specs.parameters
    parameters.add(name="rate", parameter_type=1, feasible_space={"min": "0.1", "max": "0.5"})
    parameters.add(name="kind", parameter_type=4, feasible_space={"list": ["adam", "sgd"]})
    return made


def run_sweep(katib):
    """Suggest, train and end all trials, and one that fails; return the names of the trials."""
    experiment, reply = make_experiment(), GetSuggestionsReply()
    katib.call(trials.record_request, experiment, [])
    for rate, kind, _ in [*SWEEP, ("0.5", "sgd", None)]:
        values = [{"name": "rate", "value": rate}, {"name": "kind", "value": kind}]
        reply.parameter_assignments.add(assignments=values)
    katib.call(trials.record_suggestions, experiment, reply)

    listed = []
    for suggested, accuracy in zip(
        reply.parameter_assignments, [*(each[2] for each in SWEEP), None], strict=True
    ):
        trial = Trial(name=suggested.trial_name)
        trial.spec.parameter_assignments.assignments.extend(suggested.assignments)
        trial.status.condition = TrialStatus.FAILED if accuracy is None else TrialStatus.SUCCEEDED
        listed.append(trial)
        for epoch in range(3 if accuracy else 0):
            stamp = f"2026-01-31T12:0{epoch}:00Z"
            katib.report(trial.name, log("accuracy", accuracy - (2 - epoch) / 16, stamp))
    katib.call(trials.record_request, experiment, listed)
    return [trial.name for trial in listed]


def table_of(page):
    return page.locator("tf-hparams-table-view")


def check_box(page, value):
    boxes = page.locator("tf-hparams-query-pane").locator("paper-checkbox")
    return boxes.filter(has_text=re.compile(rf"^\s*{value}\s*$"))


def expect_rows(page, shown, hidden):
    """Waits until the table has some trials, and others not."""
    for name in shown:
        expect(table_of(page).get_by_text(name, exact=True).locator("visible=true")).to_have_count(
            1
        )
    for name in hidden:
        expect(table_of(page).get_by_text(name, exact=True).locator("visible=true")).to_have_count(
            0
        )


def test_finished_sweep_is_shown_and_filtered(page, uploader, katib):
    names = run_sweep(katib)
    reader = Reader(uploader.server, uploader.token)
    listed = ApiClient(reader.http, uploader.token).request("GET", "/experiments").json()
    reader.http.close()
    (experiment_id,) = [
        each["experiment_id"] for each in listed["experiments"] if each["name"] == "sweep"
    ]
    page.goto(share_link(uploader, experiment_id))
    open_tab(page, "HParams")
    expect_rows(page, names, [])
    for text in ("rate", "kind", "accuracy", "0.37500", "0.87500", "0.50000"):
        expect(table_of(page).get_by_text(text, exact=True).first).to_be_visible()
    shoot(page, "katib_sweep")
    check_box(page, "Failure").click()
    expect_rows(page, names[:3], names[3:])
    check_box(page, "sgd").click()
    expect_rows(page, [names[0], names[2]], [names[1], names[3]])
