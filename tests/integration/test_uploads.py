"""The records of uploads over HTTP and on the page: what is stored, bounded, hidden and removed."""

from __future__ import annotations

from sqlalchemy import text

from support.batches import ApiClient, scalars, segment, stream
from support.page_forms import new_reader
from support.people import new_member
from support.servers import new_workspace
from support.share_links import make_link, reader_of, target_of

ID = "0123456789abcdef"
START, END = "2026-01-31T12:00:00Z", "2026-01-31T13:00:00Z"
ORIGIN = {"host": "gpu7", "user": "ada", "command": "train.py --lr 0.1", "python": "3.12.1"}
MARK = "UNIQUE-MARK"
HOSTILE = '"><script>alert(1)</script>'


def put(api, experiment, upload_id=ID, **fields):
    body = {"origin": ORIGIN, "started_at": START, "status_of": "training"} | fields
    return api.request("PUT", f"/experiments/{experiment}/uploads/{upload_id}", json=body)


def change(api, experiment, upload_id=ID, **fields):
    return api.request("PATCH", f"/experiments/{experiment}/uploads/{upload_id}", json=fields)


def listed(api, experiment, **parameters):
    answer = api.request("GET", f"/experiments/{experiment}/uploads", params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()


def execute(database, workspace_id, statement):
    with database.transaction(workspace_id) as db:
        db.execute(text(statement))


def test_upload_is_recorded_and_ends(api, experiment):
    assert listed(api, experiment) == {"uploads": [], "next": None}
    assert put(api, experiment, packages=["numpy==2.1", "torch==2.5"]).status_code == 204
    (upload,) = listed(api, experiment)["uploads"]
    assert upload["upload_id"] == ID
    assert (upload["origin"], upload["packages"]) == (ORIGIN, ["numpy==2.1", "torch==2.5"])
    assert (upload["status"], upload["status_of"], upload["ended_at"]) == (
        "running",
        "training",
        None,
    )
    ended = change(api, experiment, status="failed", detail="exit code 3", ended_at=END)
    assert ended.status_code == 204
    (upload,) = listed(api, experiment)["uploads"]
    assert (upload["status"], upload["detail"], upload["ended_at"]) == (
        "failed",
        "exit code 3",
        END,
    )
    assert change(api, experiment).status_code == 204  # only heard of
    assert listed(api, experiment)["uploads"][0]["status"] == "failed"
    change(api, experiment, status="running", ended_at=END)
    (again,) = listed(api, experiment)["uploads"]
    assert (again["status"], again["ended_at"]) == ("running", None)
    assert again["seen_at"] > upload["seen_at"]


def test_repeated_record_is_one_and_other_uploads_stay(api, experiment):
    for upload_id in (ID, ID, "f" * 16):
        put(api, experiment, upload_id).raise_for_status()
    change(api, experiment, "f" * 16, status="finished").raise_for_status()
    statuses = {each["upload_id"]: each["status"] for each in listed(api, experiment)["uploads"]}
    assert statuses == {ID: "running", "f" * 16: "finished"}
    assert change(api, experiment, "e" * 16, status="failed").status_code == 404
    assert listed(api, api.new_experiment())["uploads"] == []


SILENT = "UPDATE uploads SET seen_at = now() - interval '16 minutes'"


def status_of(api, experiment):
    """Return the status in the list of experiments, which that of one must equal."""
    (listed,) = api.experiments()
    shown = api.request("GET", f"/experiments/{experiment}").json()
    assert listed["status"] == shown["status"]
    return listed["status"]


def test_upload_that_says_nothing_is_silent(api, experiment, database, workspace_id):
    put(api, experiment)
    execute(database, workspace_id, SILENT)
    assert listed(api, experiment)["uploads"][0]["status"] == "silent"
    assert status_of(api, experiment) == "silent"
    change(api, experiment)
    assert listed(api, experiment)["uploads"][0]["status"] == "running"
    change(api, experiment, status="finished")
    execute(database, workspace_id, SILENT)
    assert listed(api, experiment)["uploads"][0]["status"] == "finished"


def test_experiment_has_status_of_uploads(client, api, experiment, database, workspace_id):
    api.write(experiment, segment(stream(), 0, 9, scalars("loss", [1])))  # new data say nothing
    assert status_of(api, experiment) is None
    put(api, experiment)
    assert status_of(api, experiment) == "running"
    for status in ("finished", "failed", "killed", "unknown"):
        change(api, experiment, status=status)
        assert status_of(api, experiment) == status
    put(api, experiment, "f" * 16)
    change(api, experiment)  # heard of later than the one that runs
    assert status_of(api, experiment) == "running"
    execute(database, workspace_id, SILENT)
    change(api, experiment)
    assert status_of(api, experiment) == "unknown"
    api.request("PATCH", f"/experiments/{experiment}", json={"visibility": "link"})
    assert client.get(f"/api/v1/experiments/{experiment}").json()["status"] is None


def test_uploads_are_paged_and_the_oldest_removed(api, experiment, monkeypatch):
    monkeypatch.setattr("tbservice.experiments.uploads.UPLOADS_ITEMS_MAX", 4)
    ids = [f"{number:016x}" for number in range(6)]
    for upload_id in ids:
        put(api, experiment, upload_id).raise_for_status()
    first = listed(api, experiment, limit=3)
    rest = listed(api, experiment, limit=3, after=first["next"])
    pages = [[each["upload_id"] for each in page["uploads"]] for page in (first, rest)]
    assert pages == [ids[:2:-1], [ids[2]]]
    assert rest["next"] is None
    path = f"/experiments/{experiment}/uploads"
    for parameters in ({"after": "rubbish"}, {"limit": 101}):
        assert api.request("GET", path, params=parameters).status_code in {400, 422}


def test_record_over_its_limits_is_refused(api, experiment):
    for fields in (
        {"origin": {"host": "x" * 2_001}},
        {"origin": {f"k{number}": "x" for number in range(101)}},
        {"origin": {f"k{number}": "x" * 2_000 for number in range(9)}},
        {"origin": {"": "x"}},
        {"origin": {"host": "a\0"}},
        {"origin": {"host": ["x"]}},
        {"packages": ["x"] * 1_001},
        {"packages": ["x" * 1_000] * 33},
        {"packages": [1]},
        {"status_of": "weather"},
        {"started_at": "1969-12-31T23:59:59Z"},
        {"started_at": "9999-01-01T00:00:00Z"},
        {"started_at": "2026-01-31T12:00:00"},
        {"started_at": None},
        {"status": "running"},
    ):
        assert put(api, experiment, **fields).status_code == 422, fields
        assert listed(api, experiment)["uploads"] == [], fields


def test_change_over_its_limits_is_refused(api, experiment):
    put(api, experiment)
    for fields in (
        {"status": "asleep"},
        {"status": "silent"},
        {"status": "failed", "detail": "x" * 201},
        {"console": "x" * 16_001},
        {"git_diff": "x" * 16_001},
        {"console": ["x"]},
        {"status": "failed", "ended_at": "0001-01-01T00:00:00+23:59"},
        {"weather": "x"},
    ):
        assert change(api, experiment, **fields).status_code == 422
    for upload_id in ("x" * 16, "0" * 15, "0" * 17, "A" * 16):
        assert put(api, experiment, upload_id).status_code == 422


def test_texts_are_added_to_the_origin(api, experiment):
    put(api, experiment)
    change(api, experiment, git_diff="-a\n+b", status="failed", detail="x").raise_for_status()
    change(api, experiment, console="one\n\ttwo\x1b[1m\r\u202e").raise_for_status()
    (upload,) = listed(api, experiment)["uploads"]
    console = "one\n\ufffdtwo\ufffd[1m\ufffd\ufffd"
    assert upload["origin"] == {**ORIGIN, "git_diff": "-a\n+b", "console": console}
    assert (upload["status"], upload["detail"]) == ("failed", "x")
    change(api, experiment, console="x" * 16_000).raise_for_status()
    assert listed(api, experiment)["uploads"][0]["origin"]["console"] == "x" * 16_000
    assert change(api, experiment, "e" * 16, console="x").status_code == 404


def test_control_characters_are_replaced(api, experiment):
    origin = {"command": "a\x1b[31m\nb\u202ec\u2028\u200f", "no\nte": "ünïcode 日本"}
    put(api, experiment, origin=origin, packages=["a\x07==1"]).raise_for_status()
    change(api, experiment, status="failed", detail="x\r\ny").raise_for_status()
    (upload,) = listed(api, experiment)["uploads"]
    assert upload["origin"] == {
        "command": "a\ufffd[31m\ufffdb\ufffdc\ufffd\ufffd",
        "no\ufffdte": "ünïcode 日本",
    }
    assert (upload["packages"], upload["detail"]) == (["a\ufffd==1"], "x\ufffd\ufffdy")
    api.request("PATCH", f"/experiments/{experiment}", json={"origin": origin}).raise_for_status()
    stored = api.request("GET", f"/experiments/{experiment}").json()["origin"]
    assert stored == upload["origin"]


def test_removed_origin_removes_uploads_for_good(api, experiment):
    put(api, experiment)
    api.request(
        "PATCH", f"/experiments/{experiment}", json={"origin": {"host": "x"}}
    ).raise_for_status()
    assert len(listed(api, experiment)["uploads"]) == 1
    api.request("PATCH", f"/experiments/{experiment}", json={"origin": {}}).raise_for_status()
    assert listed(api, experiment)["uploads"] == []
    assert change(api, experiment).status_code == 404
    assert change(api, experiment, status="finished").status_code == 404


def record_marked(api, experiment):
    api.write(experiment, segment(stream(), 0, 9, scalars("loss", range(9))))
    put(api, experiment, origin=dict.fromkeys(ORIGIN, MARK), packages=[MARK]).raise_for_status()
    texts = {"console": MARK, "git_diff": MARK}
    change(api, experiment, status="failed", detail=MARK, **texts).raise_for_status()


def test_link_that_hides_no_origin_shows_uploads(client, api, experiment):
    record_marked(api, experiment)
    for fields in ({}, {"runs": "none"}):
        reader = reader_of(client, make_link(api, experiment, **fields))
        assert listed(reader, experiment)["uploads"][0]["detail"] == MARK
    frozen = make_link(api, experiment, frozen=True)
    assert listed(reader_of(client, frozen), target_of(frozen))["uploads"] == []


def test_uploads_take_a_token_of_who_reads_by_address(client, api, experiment, database_url):
    record_marked(api, experiment)
    path = f"/api/v1/experiments/{experiment}"
    api.request("PATCH", f"/experiments/{experiment}", json={"visibility": "link"})
    assert client.get(f"{path}/runs").status_code == 200
    assert client.get(f"{path}/uploads").status_code == 401
    stranger = ApiClient(client, new_workspace(database_url).owner_token)
    assert stranger.request("GET", f"/experiments/{experiment}/runs").status_code == 200
    assert stranger.request("GET", f"/experiments/{experiment}/uploads").status_code == 404


def test_page_shows_uploads_to_members_and_escapes_them(
    client, api, database, database_url, workspace_id, experiment
):
    origin = {HOSTILE: HOSTILE, "host": HOSTILE, "command": HOSTILE, "gpus": "2 x A100"}
    put(api, experiment, origin=origin, packages=[HOSTILE, "numpy==2.1"]).raise_for_status()
    change(api, experiment, status="killed", detail=HOSTILE, ended_at=END).raise_for_status()
    change(api, experiment, console=f"last words\n{HOSTILE}", git_diff="+lr").raise_for_status()
    member = new_reader(client, database, new_member(database, workspace_id))
    page = member.get(f"/experiment/{experiment}/about").text
    for shown in (
        "Killed",
        "2 x A100",
        "numpy==2.1",
        "2 packages",
        "training started",
        ID[:8],
        "last words",
        'id="console"',
    ):
        assert shown in page
    assert "alert(1)" in page
    assert "<script>alert" not in page

    api.request("PATCH", f"/experiments/{experiment}", json={"visibility": "link"})
    other_id = new_workspace(database_url).workspace_id
    other = new_reader(client, database, new_member(database, other_id))
    stranger = other.get(f"/experiment/{experiment}/about")
    assert stranger.status_code == 200
    assert "2 x A100" not in stranger.text
    assert "last words" not in stranger.text
