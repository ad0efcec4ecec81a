"""What a batch and the reading of it execute on a cluster: one task each, on one node."""

import pytest

from support.batches import ApiClient, images, packed_scalars, scalars, segment, stream, texts
from support.plans import explained_statements
from support.servers import new_owner

SEVERAL = {
    "compaction of old work": "SELECT data_at, experiment_id FROM experiments WHERE workspace_id",
    "erasing": "SELECT workspace_id, experiment_id FROM experiments WHERE erase_at",
    "erasing series": "SELECT DISTINCT workspace_id, experiment_id FROM erased_series",
    "request keys": "WHERE workspace_id = %(workspace_id)s AND request_key =",
    "new token": "WITH t AS ( INSERT INTO tokens",
    "words of an experiment": "INSERT INTO experiment_words",
    "rows of blobs": "INSERT INTO blobs ",
    "deleted experiments": "AND deleted_at IS NOT NULL AND snapshot_of IS NULL",
    "lists": "AND e.is_listed",
    "unfinished uploads": "FROM blob_uploads WHERE touched_at",
    "copies": "snapshot_of =",
    "usage of a workspace": "WITH points AS MATERIALIZED",
}
"""Statements of several tasks, by what they are for; each is in docs/citus.md."""

PARAMETERS = {"run": "train", "tag": "s0", "q": "plans", "runs": "train", "tags": "s0"}


@pytest.fixture
def walk(cluster, request):  # noqa: ARG001 - skips without one
    """A client whose application explains all of its statements, and their plans."""
    with explained_statements() as plans:
        client = request.getfixturevalue("client")
        yield ApiClient(client, new_owner(request.getfixturevalue("database_url"))), plans


def list_reads(api, experiment):
    """Return the path of each GET of the API and of TensorBoard's page for an experiment."""
    paths = api.request("GET", "/openapi.json").json()["paths"]
    for template, methods in paths.items():
        path = template.replace("{experiment_id}", experiment)
        if "get" in methods and "{" not in path and "stream" not in path:
            yield path


@pytest.mark.own_database
def test_flush_and_reads_are_one_task_each(walk):
    api, plans = walk
    experiment = api.new_experiment(name="plans")
    for turn in range(3):
        start, steps = turn * 100, range(turn * 2000, turn * 2000 + 2000)
        api.write(
            experiment,
            segment(stream(), start, start + 100, *[scalars(f"s{n}", [turn]) for n in range(3)]),
            segment(stream("second"), start, start + 100, packed_scalars("packed", [*steps])),
        )
    api.write(experiment, segment(stream(), 300, 400, texts("t", [0, 1], [b"a", b"b"])))
    api.write(experiment, segment(stream(), 400, 500, images("i", [0], [[b"png"]])))

    failed = []
    for path in list_reads(api, experiment):
        answer = api.client.get(path, params=PARAMETERS, headers=api.headers)
        if answer.status_code >= 500:
            failed.append((path, answer.text))

    several = {
        statement: plan
        for statement, plan in plans.of_several_tasks().items()
        if not any(known in statement for known in SEVERAL.values())
    }
    assert not several, "\n\n".join(f"{key}\n{plan}" for key, plan in several.items())
    assert not failed
    assert len(plans.tasks) > 50
