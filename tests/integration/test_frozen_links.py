"""Frozen links: a copy of one moment, made while uploads and compaction run, and what becomes of it."""

from __future__ import annotations

import itertools
import threading
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from support.batches import images, scalars, segment, stream, texts
from support.page_forms import new_reader
from support.people import new_member
from support.share_links import list_links, make_link, reader_of, revoke, target_of
from support.suspending import suspend
from support.uploading import wait_until
from tbservice.experiments import share_links
from tbservice.experiments.eraser import erase_due
from tbservice.experiments.tables import snapshots
from tbservice.types.suspensions import Suspendable

SOON = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
STEPS_PER_BATCH = 40
TAGS = [f"tag{number}" for number in range(5)]
WRITERS = ("left", "right")


def steps_of(number):
    return range(number * STEPS_PER_BATCH, (number + 1) * STEPS_PER_BATCH)


def write(api, experiment, run, number):
    """Write the batch of this number: new points of all series, and some that replace earlier ones."""
    steps = steps_of(number)
    later = [1.8e9 + number] * STEPS_PER_BATCH
    again = [step % 50 for step in steps]
    sent = segment(
        stream(run),
        number * 9,
        number * 9 + 9,
        *[scalars(tag, steps) for tag in TAGS],
        scalars("replaced", again, [number] * STEPS_PER_BATCH, later),
        texts("note", steps, [f"text {step}".encode() for step in steps]),
        images("cat", steps[:2], [[f"{run} png {step}".encode()] for step in steps[:2]]),
    )
    api.write(experiment, sent)


@pytest.fixture
def experiment(api):
    experiment = api.new_experiment(name="an experiment", description="about it")
    write(api, experiment, "train", 0)
    return experiment


@pytest.fixture
def writers(api):
    """Start threads that write to an experiment as fast as they can, until the test has ended.

    Returns the list of the numbers of all batches so far.
    """
    is_over = threading.Event()
    threads = []
    written = []

    def start(experiment):
        def run(name):
            for number in itertools.count():
                if is_over.is_set():
                    return
                write(api, experiment, name, number)
                written.append(number)

        for name in WRITERS:
            threads.append(threading.Thread(target=run, args=(name,)))
            threads[-1].start()
        return written

    yield start
    is_over.set()
    for thread in threads:
        thread.join()


def digests_of(reader, experiment):
    """Return count and digest of each series, by run and tag."""
    listed = reader.get(experiment, "digests")["series"]
    return {
        (each["run"], each["tag"]): (each["count"], each["sha256"], each["metadata_sha256"])
        for each in listed
    }


def rows_of(database, workspace_id, experiment):
    """Return the number of rows of an experiment in each table that has them."""
    with database.transaction(workspace_id) as db:
        tables = db.execute(
            text("""
                SELECT table_name FROM information_schema.columns
                WHERE column_name = 'experiment_id' AND table_schema = 'public'
            """)
        ).scalars()
        return {
            table: db.execute(
                text(f"SELECT count(*) FROM {table} WHERE experiment_id = :id"),  # noqa: S608 - a table
                {"id": experiment},
            ).scalar_one()
            for table in tables.all()
        }


def test_copy_made_during_uploads_is_state_of_one_moment(client, api, writers):
    """Each copy equals an experiment to which exactly its batches were written."""
    experiment = api.new_experiment()
    written = writers(experiment)
    links = []
    for _ in range(2):  # more than each writer may have committed before, and not yet counted
        count = len(written) + len(WRITERS) + 1
        wait_until(lambda count=count: len(written) >= count)
        links.append(make_link(api, experiment, frozen=True))

    counts = []
    for link in links:
        frozen = digests_of(reader_of(client, link), target_of(link))
        counted = {run: frozen.get((run, TAGS[0]), [0])[0] for run in WRITERS}
        written = {run: count // STEPS_PER_BATCH for run, count in counted.items()}
        counts.append(sum(written.values()))
        other = api.new_experiment()
        for run, batches in written.items():
            for number in range(batches):
                write(api, other, run, number)
        assert frozen == digests_of(api, other)
    assert counts == sorted(counts)
    assert counts[-1] > counts[0]


def test_copy_has_everything_and_stays_as_it_was(client, api, experiment):
    link = make_link(api, experiment, frozen=True)
    reader, target = reader_of(client, link), target_of(link)
    before = digests_of(reader, target)
    assert before == digests_of(api, experiment)
    for kind in ("scalars", "tensors"):
        own = api.get(experiment, f"{kind}/data", sampling="all")
        assert reader.get(target, f"{kind}/data", sampling="all") == own
    (value,) = reader.get(target, "blob_sequences/data")["train"]["cat"]["values"][0]
    assert reader.request("GET", f"/blobs/{value['key']}").content == b"train png 0"
    fields = reader.request("GET", f"/experiments/{target}").json()
    assert (fields["name"], fields["description"]) == ("an experiment", "about it")
    assert fields["visibility"] == "private"

    write(api, experiment, "train", 1)
    assert digests_of(reader, target) == before
    path = f"/experiments/{experiment}/runs"
    api.request("DELETE", path, params={"run": "train"}).raise_for_status()
    assert digests_of(reader, target) == before
    assert reader.request("GET", f"/blobs/{value['key']}").content == b"train png 0"


def test_cards_in_texts_of_copy_are_its_own(client, api, experiment):
    said = f"![c](/experiment/{experiment}/card.svg?tag=loss) [of](/experiment/{experiment}/)"
    texts = {"notes": said, "description": said}
    api.request("PATCH", f"/experiments/{experiment}", json=texts).raise_for_status()
    link = make_link(api, experiment, frozen=True)
    fields = reader_of(client, link).request("GET", f"/experiments/{target_of(link)}").json()
    for text_ in (fields["notes"], fields["description"]):
        assert f"![c](/experiment/{target_of(link)}/card.svg?tag=loss)" in text_
        assert text_.endswith(f"(/experiment/{experiment}/)")


def test_copy_of_slice_has_rows_of_slice_only(client, api, experiment, database, workspace_id):
    write(api, experiment, "other", 0)
    link = make_link(api, experiment, frozen=True, runs="train", tags="tag[01]|cat")
    target = target_of(link)
    rows = rows_of(database, workspace_id, target)
    assert (rows["runs"], rows["tags"], rows["time_series"]) == (1, 3, 3)
    assert (rows["tensor_points"], rows["blob_points"]) == (0, 2)
    listed = digests_of(reader_of(client, link), target)
    own = digests_of(api, experiment)
    assert listed == {key: own[key] for key in (("train", tag) for tag in ("cat", "tag0", "tag1"))}
    assert len(digests_of(api, target)) == 3  # nor does the owner find more in the copy


def test_copy_refuses_everything_but_reading(api, experiment):
    target = target_of(make_link(api, experiment, frozen=True))
    assert api.send(target, segment(stream(), 0, 9, scalars("loss", [1]))).status_code == 403
    base = f"/experiments/{target}"
    for method, path, body in (
        ("DELETE", base, {}),
        ("PATCH", base, {"json": {"name": "x"}}),
        ("POST", f"{base}/tokens", {"json": {"scopes": ["read"]}}),
        ("POST", f"{base}/links", {"json": {"frozen": True}}),
        ("DELETE", f"{base}/runs", {"params": {"run": "train"}}),
        ("GET", f"{base}/streams", {}),
    ):
        answer = api.request(method, path, **body)
        assert (answer.status_code, "frozen copy" in answer.text) == (403, True), path
    assert api.get(target, "runs")["runs"]


def test_copy_is_not_listed(api, experiment):
    make_link(api, experiment, frozen=True)
    listed = api.experiments()
    assert [each["experiment_id"] for each in listed] == [experiment]
    listed = api.request("GET", "/experiments", params={"q": "an exp"}).json()["experiments"]
    assert [each["experiment_id"] for each in listed] == [experiment]


def test_revoked_frozen_link_leaves_nothing(client, api, experiment, database, workspace_id):
    link, other = (make_link(api, experiment, frozen=True) for _ in range(2))
    revoke(api, experiment, link)
    assert api.request("GET", f"/experiments/{target_of(link)}").status_code == 404
    erase_due(database, threading.Event())
    assert set(rows_of(database, workspace_id, target_of(link)).values()) == {0}
    answer = reader_of(client, link).request("GET", f"/experiments/{target_of(link)}/runs")
    assert answer.status_code == 401
    assert [each["id"] for each in list_links(api, experiment)] == [other["id"]]
    assert reader_of(client, other).get(target_of(other), "runs")["runs"]


def test_copies_are_deleted_with_their_source(client, api, experiment, database, workspace_id):
    # Several: the ids of some are before that of the source, which once made a difference.
    for _ in range(4):
        make_link(api, experiment, frozen=True)
    link = make_link(api, experiment, frozen=True)
    path = f"/experiments/{target_of(link)}/runs"
    api.request("DELETE", f"/experiments/{experiment}").raise_for_status()
    assert reader_of(client, link).request("GET", path).status_code == 404
    api.request("POST", f"/experiments/{experiment}/restore").raise_for_status()
    assert len(list_links(api, experiment)) == 5
    assert reader_of(client, link).request("GET", path).status_code == 200
    api.request("DELETE", f"/experiments/{experiment}?final=true").raise_for_status()
    erase_due(database, threading.Event())
    assert set(rows_of(database, workspace_id, target_of(link)).values()) == {0}
    assert reader_of(client, link).request("GET", path).status_code == 401


def test_kept_copies_outlast_their_source_until_their_links_end(
    client, api, experiment, database, workspace_id
):
    links = [make_link(api, experiment, frozen=True, expires_at=at) for at in (None, SOON)]
    target = target_of(links[0])
    before = digests_of(reader_of(client, links[0]), target)
    gone = api.request("DELETE", f"/experiments/{experiment}?final=true&keep_frozen_links=true")
    assert gone.status_code == 204
    erase_due(database, threading.Event())
    assert set(rows_of(database, workspace_id, experiment).values()) == {0}
    assert digests_of(reader_of(client, links[0]), target) == before
    usage = api.request("GET", f"/workspaces/{workspace_id}/usage").json()
    assert usage["limits"]["points"]["used"] == 2 * sum(count for count, *_ in before.values())
    copies = {target_of(link) for link in links}
    assert {each["experiment_id"] for each in usage["experiments"]} == copies

    placed = api.request("GET", f"/workspaces/{workspace_id}/links").json()["links"]
    assert {(each["experiment_id"], each["frozen"]) for each in placed} == {
        (each, True) for each in copies
    }
    path = f"/experiments/{target}"
    for method, place, body in (
        ("PATCH", path, {"json": {"name": "x"}}),
        ("POST", f"{path}/links", {"json": {}}),
        ("DELETE", path, {}),
        ("GET", f"{path}/streams", {}),
    ):
        assert api.request(method, place, **body).status_code == 403, place
    assert api.experiments() == []

    assert [(each["id"], each["frozen"]) for each in list_links(api, target)] == [
        (links[0]["id"], True)
    ]
    revoke(api, target, links[0])
    assert api.request("GET", path).status_code == 404
    assert reader_of(client, links[1]).get(target_of(links[1]), "runs")["runs"]
    end(database, workspace_id, links[1])  # of the other one
    erase_due(database, threading.Event())
    assert rows_of(database, workspace_id, target)["time_series"] == 0
    answer = api.request("GET", f"/workspaces/{workspace_id}/receipts").json()["receipts"]
    told = {
        each["experiment_id"]: (each["frozen_copies"], each["frozen_copies_kept"])
        for each in answer
    }
    assert told == {experiment: (0, 2), **dict.fromkeys(copies, (0, 0))}


def test_kept_copy_stays_kept_when_its_source_is_restored(
    client, api, experiment, database, workspace_id
):
    link = make_link(api, experiment, frozen=True)
    for query in ("keep_frozen_links=true", "final=true"):
        api.request("DELETE", f"/experiments/{experiment}?{query}").raise_for_status()
        restored = api.request("POST", f"/experiments/{experiment}/restore")
        assert reader_of(client, link).get(target_of(link), "runs")["runs"]
    assert restored.status_code == 404
    erase_due(database, threading.Event())
    (receipt,) = api.request("GET", f"/workspaces/{workspace_id}/receipts").json()["receipts"]
    assert receipt["frozen_copies_kept"] == 1


def test_copies_of_what_is_suspended_are_not_kept(
    client, api, experiment, database, workspace_id, monkeypatch
):
    link = make_link(api, experiment, frozen=True)
    path = f"/experiments/{experiment}?keep_frozen_links=true"
    with monkeypatch.context() as patch:
        patch.setattr("tbservice.experiments.snapshots.KEPT_COPIES_ITEMS_MAX", 0)
        answer = api.request("DELETE", path)
    assert (answer.status_code, "kept_copies_items_max" in answer.text) == (409, True)
    with database.transaction(workspace_id) as db:
        assert snapshots.try_lock(db, experiment)
        assert api.request("DELETE", path).status_code == 409
    suspend(database, Suspendable.EXPERIMENT, experiment)
    assert api.request("DELETE", path).status_code == 409
    shown = f"/experiments/{target_of(link)}/runs"
    assert reader_of(client, link).request("GET", shown).status_code == 451


def test_copy_committed_after_deletion_is_shown_to_nobody(
    api, experiment, database, workspace_id, monkeypatch
):
    """It began before the deletion: the eraser would find it a week later."""
    create = share_links.create_link

    def delete_meanwhile(writer, grant, *args, **options):
        made = create(writer, grant, *args, **options)
        api.request("DELETE", f"/experiments/{experiment}").raise_for_status()
        return made

    monkeypatch.setattr(share_links, "create_link", delete_meanwhile)
    answer = api.request("POST", f"/experiments/{experiment}/links", json={"frozen": True})
    assert answer.status_code == 404
    with database.transaction(workspace_id) as db:
        assert db.execute(text("SELECT count(*) FROM experiments")).scalar() == 0
    monkeypatch.undo()
    api.request("POST", f"/experiments/{experiment}/restore").raise_for_status()
    assert list_links(api, experiment) == []


def test_deletion_from_the_list_asks_for_copies(client, api, experiment, database, workspace_id):
    page = new_reader(client, database, new_member(database, workspace_id))
    other = api.new_experiment()
    links = [make_link(api, each, frozen=True) for each in (experiment, other)]
    form = {"experiment": [experiment, other], "workspace": workspace_id}
    asked = page.post("/experiments/delete", form)
    assert (asked.status_code, "2 frozen copies that links show" in asked.text) == (200, True)
    assert api.request("GET", f"/experiments/{experiment}").status_code == 200
    assert page.post("/experiments/delete", {**form, "copies": "keep"}).status_code == 303
    assert api.request("GET", f"/experiments/{experiment}").status_code == 404
    assert "Frozen copy</span>" in page.get(f"/experiment/{target_of(links[0])}/about").text
    address = f"/experiment/{target_of(links[0])}/links"
    assert "which was kept when its experiment was deleted" in page.get(address).text
    assert page.post(f"{address}/revoke", {"link_id": links[0]["id"]}).status_code == 303
    place = {"experiment_id": target_of(links[1]), "link_id": links[1]["id"]}
    assert page.post(f"/workspace/{workspace_id}/link/revoke", place).status_code == 303
    for link in links:
        answer = reader_of(client, link).request("GET", f"/experiments/{target_of(link)}/runs")
        assert answer.status_code == 401


def test_page_asks_for_copies(client, api, experiment, database, workspace_id):
    page = new_reader(client, database, new_member(database, workspace_id))
    about = f"/experiment/{experiment}/about"
    assert "frozen cop" not in page.get(about).text
    make_link(api, experiment, frozen=True)
    assert "1 frozen copy that a link shows" in page.get(about).text
    link = make_link(api, experiment, frozen=True)
    assert "2 frozen copies that links show" in page.get(about).text
    assert page.post(f"/experiment/{experiment}/delete", {"copies": "keep"}).status_code == 303
    assert reader_of(client, link).get(target_of(link), "runs")["runs"]


def end(database, workspace_id, link):
    """Let a link expire now, as if time had passed."""
    with database.transaction(workspace_id) as db:
        for statement in (
            "UPDATE tokens SET expires_at = now() WHERE token_id = :token",
            """UPDATE experiments SET erase_at = now()
            WHERE experiment_id = :target AND erase_at > now()""",
        ):
            db.execute(text(statement), {"token": link["id"], "target": target_of(link)})


def test_copy_is_erased_when_its_link_expires(api, experiment, database, workspace_id):
    link = make_link(api, experiment, frozen=True, expires_at=SOON)
    kept = make_link(api, experiment, frozen=True)
    erase_due(database, threading.Event())
    assert rows_of(database, workspace_id, target_of(link))["experiments"] == 1
    end(database, workspace_id, link)
    erase_due(database, threading.Event())
    assert set(rows_of(database, workspace_id, target_of(link)).values()) == {0}
    assert rows_of(database, workspace_id, target_of(kept))["runs"] == 1


def test_ended_copies_are_hidden_with_the_next_link(api, experiment, database, workspace_id):
    link = make_link(api, experiment, frozen=True, expires_at=SOON)
    end(database, workspace_id, link)
    assert api.request("GET", f"/experiments/{target_of(link)}").status_code == 200
    make_link(api, experiment)
    assert api.request("GET", f"/experiments/{target_of(link)}").status_code == 404


def test_frozen_links_of_experiment_are_bounded(api, experiment, monkeypatch):
    monkeypatch.setattr("tbservice.experiments.snapshots.FROZEN_LINKS_ITEMS_MAX", 2)
    links = [make_link(api, experiment, frozen=True) for _ in range(2)]
    path = f"/experiments/{experiment}/links"
    answer = api.request("POST", path, json={"frozen": True})
    assert (answer.status_code, "revoke one that is not needed" in answer.text) == (409, True)
    make_link(api, experiment)
    revoke(api, experiment, links[0])
    make_link(api, experiment, frozen=True)


def test_copies_of_experiment_are_made_one_at_a_time(api, experiment, database, workspace_id):
    path = f"/experiments/{experiment}/links"
    with database.transaction(workspace_id) as db:
        assert snapshots.try_lock(db, experiment)
        answer = api.request("POST", path, json={"frozen": True})
        assert (answer.status_code, "is being made" in answer.text) == (409, True)
    make_link(api, experiment, frozen=True)


@pytest.mark.parametrize("limit", ["SNAPSHOT_POINTS_MAX", "SNAPSHOT_SECONDS_MAX"])
def test_too_large_copy_leaves_nothing(api, experiment, database, workspace_id, monkeypatch, limit):
    monkeypatch.setattr(f"tbservice.experiments.snapshots.{limit}", 0)
    answer = api.request("POST", f"/experiments/{experiment}/links", json={"frozen": True})
    assert (answer.status_code, limit.lower() in answer.text) == (413, True)
    assert list_links(api, experiment) == []
    with database.transaction(workspace_id) as db:
        assert db.execute(text("SELECT count(*) FROM experiments")).scalar() == 1
        assert db.execute(text("SELECT count(DISTINCT experiment_id) FROM runs")).scalar() == 1


def test_copies_are_made_in_chunks(client, api, experiment, monkeypatch):
    monkeypatch.setattr("tbservice.experiments.snapshots.SNAPSHOT_CHUNK_POINTS", 50)
    monkeypatch.setattr("tbservice.experiments.snapshots.SNAPSHOT_CHUNK_ITEMS", 2)
    link = make_link(api, experiment, frozen=True)
    assert digests_of(reader_of(client, link), target_of(link)) == digests_of(api, experiment)


def test_every_column_is_copied(database):
    """A column that a migration adds must be copied, or be one of those that are not."""
    own = {"experiment_id", "snapshot_of", "visibility", "request_key", "number", "is_listed"}
    own |= {"is_published"}
    own |= {"deleted_at", "erase_at", "points", "bytes", "listed_bytes"}
    own |= {"last_start_time"}  # a copy has no attempts
    own |= {"summary"}  # empty: unknown
    tables = {
        "experiments": snapshots.EXPERIMENT_COLUMNS,
        **snapshots.SERIES_COLUMNS,
        **snapshots.POINT_COLUMNS,
    }
    with database.transaction() as db:
        for table, columns in tables.items():
            query = """
                SELECT column_name FROM information_schema.columns
                WHERE table_name = :table AND table_schema = 'public'
            """
            existing = set(db.execute(text(query), {"table": table}).scalars())
            hidden = {"tags"} if table == "runs" else set()  # of members: links show none
            assert existing - own - hidden == set(columns.split(", ")) - own, table


def test_every_view_has_columns_of_its_table(database):
    """Statements of readers must find in the views what they find in the tables."""
    query = """
        SELECT table_name, column_name FROM information_schema.columns
        WHERE table_schema = :schema
    """
    with database.transaction() as db:
        views, tables = (
            set(db.execute(text(query), {"schema": schema}).all())
            for schema in ("link_views", "public")
        )
    names = {table for table, _ in views}
    columns = ("request_key", "snapshot_of", "is_listed", "is_published", "name_key")
    columns += ("listed_bytes",)
    unseen = {("experiments", column) for column in columns}
    unseen |= {("blobs", "condemned_by")}  # readers hold nothing
    unseen |= {("runs", "tags")}  # of members
    unseen |= {("time_series", "summary")}  # for the table of runs, which links do not show
    hidden = "workspace_id file_name first_record_digest generation filters_digest cursor checksum"
    unseen |= {("upload_streams", column) for column in (*hidden.split(), "skipped", "updated_at")}
    assert views == {row for row in tables if row[0] in names} - unseen
