"""Reports of Katib at the same time, sent again, and cut off: each is stored once, or not at all."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from support.batches import scalars, segment, stream
from support.hparams import start
from support.katib import KatibClient, log
from support.postgres_faults import postgres_faults
from tbservice.db.database import Database
from tbservice.errors import Unavailable
from tbservice.ingest.door import Door
from tbservice.ingest.service import Ingest
from tbservice.katib import trials
from tbservice.katib.katib_pb2 import Experiment, SetTrialStatusRequest, Trial
from tbservice.types.grants import KatibGrant

TRIAL = "random-bcdf2456"
THREADS = 8


@pytest.fixture
def grant(workspace_id):
    """Katib's right to report in the whole workspace."""
    return KatibGrant(workspace_id, None, may_read=True, may_delete=True)


@pytest.fixture
def katib(client, grant):
    """Katib's calls."""
    return KatibClient(client.app.state.ingest, grant)


@pytest.fixture
def faults(client, grant, database_url):
    """A client whose connection to PostgreSQL can be broken, and the proxy that does it."""
    ingest = client.app.state.ingest
    with postgres_faults(database_url) as proxy:
        database = Database(proxy.url, 1)
        door = Door(database, ingest.door.observers)
        yield KatibClient(Ingest(ingest.objects, door), grant), proxy
        database.close()


def at_once(calls):
    """Make all calls in threads; raises the first error, as that of a deadlock."""
    with ThreadPoolExecutor(THREADS) as threads:
        for each in [threads.submit(call) for call in calls]:
            each.result(120)


def steps(api, run):
    """{tag: steps} of a run's scalars in the only experiment."""
    (listed,) = api.experiments()
    read = api.get(listed["experiment_id"], "scalars/data")[run]
    return {tag: series["steps"] for tag, series in read.items()}


def test_reports_of_one_trial_at_once_are_all_stored(api, katib):
    at_once(
        lambda number=number: katib.report(TRIAL, log("b", number), log("a", number))
        for number in range(16)
    )
    assert sorted(map(int, katib.values(TRIAL, "a"))) == list(range(16))
    assert katib.values(TRIAL, "a") == katib.values(TRIAL, "b")
    assert steps(api, TRIAL) == {"a": list(range(16)), "b": list(range(16))}


def test_report_sent_at_once_is_stored_once(api, katib):
    at_once(lambda: katib.report(TRIAL, log("m", 1)) for _ in range(12))
    assert katib.values(TRIAL) == ["1"]
    assert steps(api, TRIAL) == {"m": [0]}


def test_all_calls_of_one_trial_at_once_have_no_deadlock(api, katib):
    experiment = Experiment(name="random")
    listed = [Trial(name=TRIAL), Trial(name="random-zzzzzzzz")]
    katib.call(trials.record_request, experiment, listed)
    (made,) = api.experiments()

    def upload(number):
        of = stream(TRIAL, f"file-{number}")
        series = [start({"lr": number}), scalars("b", [number]), scalars("a", [number])]
        api.write(made["experiment_id"], segment(of, 0, 9, *series))

    def record(number):
        for trial in listed:
            trial.status.start_time = f"2026-01-31T12:00:{number:02}Z"
        katib.call(trials.record_request, experiment, listed[:: 1 if number % 2 else -1])

    calls = []
    for number in range(6):
        calls += [
            lambda n=number: katib.report(TRIAL, log("a", n), log("b", n), log("new", n)),
            lambda n=number: upload(n),
            lambda n=number: record(n),
            lambda: katib.call(trials.set_trial_status, SetTrialStatusRequest(trial_name=TRIAL)),
        ]
        if number % 3 == 2:
            calls.append(lambda: katib.delete(TRIAL))
    at_once(calls)
    katib.report(TRIAL, log("a", "last"))
    assert katib.values(TRIAL, "a")[-1] == "last"


@pytest.mark.parametrize("fault", ["before", "after"])
def test_report_cut_off_at_any_statement_is_stored_once(api, faults, fault):
    katib, proxy = faults
    for at in itertools.count(1):
        trial = f"cut-off-{at}"
        proxy.arm(lambda number, _text, _time, at=at: fault if number == at else "")
        try:
            katib.report(trial, log("m", 1), log("m", 1), log("t", "x"), experiment="cut off")
        except Unavailable:
            proxy.disarm()
            katib.report(trial, log("m", 1), log("m", 1), log("t", "x"), experiment="cut off")
        else:
            if not proxy.hits:
                break
            proxy.disarm()  # the service has tried a statement again that wrote nothing
        assert katib.values(trial) == ["1", "1", "x"]
        assert steps(api, trial) == {"m": [0, 1]}
    assert at > 10


def count_statements(proxy, call):
    proxy.arm(lambda *_: "")
    call()
    return len(proxy.statements)


def test_report_takes_same_statements_for_any_number(faults):
    katib, proxy = faults
    katib.report(TRIAL, *(log(f"m{n}", 0) for n in range(30)))
    counts = [
        count_statements(
            proxy,
            lambda count=count: katib.report(
                TRIAL, *(log(f"m{n % 30}", n + count) for n in range(count))
            ),
        )
        for count in (30, 120)
    ]
    # More points of a series go to the write buffer, and some change columns that others do not.
    assert max(counts) <= min(counts) + 2 < 20


@pytest.mark.plain("counts statements at one server")
def test_request_takes_same_statements_for_any_number(faults):
    katib, proxy = faults
    experiment = Experiment(name="random")
    counts = []
    for count in (5, 50):
        listed = [Trial(name=f"{count}-{number}") for number in range(count)]
        record = lambda listed=listed: katib.call(trials.record_request, experiment, listed)  # noqa: E731 - called twice
        counts.append((count_statements(proxy, record), count_statements(proxy, record)))
    assert counts[1][0] <= counts[0][0]
    assert counts[0][1] == counts[1][1] <= 10


def test_failover_to_older_state_keeps_nothing_of_it(api, katib, database, workspace_id):
    """Rows are deleted under the process, as a standby that lagged behind never had them."""
    katib.report(TRIAL, log("m", 1), log("m", 2))
    tables = ("katib_observations", "katib_trials", "scalar_tail", "time_series", "runs", "tags")
    with database.transaction(workspace_id) as db:
        for table in (*tables, "experiments"):
            db.execute(text(f"DELETE FROM {table}"))  # noqa: S608 - the names above
    katib.report(TRIAL, log("m", 1), log("m", 2))
    assert katib.values(TRIAL) == ["1", "2"]
    assert steps(api, TRIAL) == {"m": [0, 1]}
