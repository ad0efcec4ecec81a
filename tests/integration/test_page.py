"""The service's additions to TensorBoard's page, and the pages it shows instead, before the web app
loads.
"""

from __future__ import annotations

import base64
import hashlib
import re
from urllib.parse import unquote

import pyarrow as pa
import pytest
from psycopg import sql

from support.admission import used_up
from support.batches import images, scalars, segment, stream, texts
from support.people import cookie_of, new_session
from support.servers import database_name
from support.share_links import make_link, target_of
from tbservice import limits
from tbservice.admission.worker_shares import FULL_SCAN_STREAMS_MAX
from tbservice.pages.stock_page.message_pages import STATE_HEADER

HOSTILE = "</header></h1><script>alert(1)</script><img src=x onerror=alert(1)>\"'$name"


@pytest.fixture
def api(shared_api):
    return shared_api


def new_experiment(api, **fields):
    return api.new_experiment(scalars("loss", [0]), **fields)


def is_allowed(answer, element):
    """Return whether the response's policy allows the content of its inline elements of that name."""
    policy = answer.headers["content-security-policy"]
    contents = re.findall(f"<{element}>(.*?)</{element}>", answer.text, re.DOTALL)
    digests = [
        base64.b64encode(hashlib.sha256(content.encode()).digest()).decode() for content in contents
    ]
    return bool(contents) and all(f"'sha256-{digest}'" in policy for digest in digests)


def test_bar_is_inert_whatever_owner_wrote(client, api):
    experiment = new_experiment(api, name=HOSTILE, description=HOSTILE)
    answer = client.get(f"/experiment/{experiment}/", headers=api.headers)
    bar = answer.text.partition('<header id="tbhub-bar">')[2].partition("</header>")[0]
    assert bar.count("$name") == 2
    assert not re.search("<(script|img|h1)", bar)
    assert "Private" in bar
    assert is_allowed(answer, "script")
    assert (
        answer.text.index("</header>")
        < answer.text.index("<tb-webapp>")
        < answer.text.index("<script async ")
    )


def test_bar_says_what_has_no_name_and_who_may_read(client, api):
    experiment = new_experiment(api, visibility="link")
    answer = client.get(f"/experiment/{experiment}/")
    assert ">Unnamed experiment<" in answer.text
    assert ">Anyone with the URL<" in answer.text
    assert "<details>" not in answer.text


@pytest.mark.parametrize(
    ("fields", "is_empty"),
    [
        ({}, True),
        ({}, False),
        ({"anonymous": True}, False),
        ({"runs": "none"}, False),
        ({"frozen": True}, True),
    ],
)
def test_reader_of_link_is_told_what_people_wrote(client, api, fields, is_empty):
    written = {
        "description": "What **it** is",
        "notes": "# Seen\n\n`diverged`",
        "tags": ["best"],
        "properties": {"lr": "<0.1>"},
        "origin": {"host": "gpu-of-ann"},
    }
    made = api.new_experiment(**written) if is_empty else new_experiment(api, **written)
    link = make_link(api, made, **fields)
    changed = {"description": "later", "notes": "later", "tags": [], "properties": {"lr": None}}
    if "frozen" in fields:
        api.request("PATCH", f"/experiments/{made}", json=changed).raise_for_status()
    headers = {"Authorization": f"Bearer {link['token']}"}
    page = client.get(f"/experiment/{target_of(link)}/", headers=headers).text
    for shown in (
        "What <strong>it</strong> is",
        "<h3>Seen</h3>\n<p><code>diverged</code>",
        "<bdi>best</bdi>",
        '<dt><bdi>lr</bdi></dt><dd dir="auto">&lt;0.1&gt;</dd>',
    ):
        assert shown in page
    assert ">Private<" not in page
    assert "gpu-of-ann" not in page
    shows_nothing = is_empty or "runs" in fields
    assert (">Shared by link<" in page) != shows_nothing
    assert ("The link that you opened shows no data yet." in page) == shows_nothing
    assert "Nothing has been uploaded" not in page


@pytest.mark.parametrize("runs", [None, "none"])
def test_member_leaves_slice_of_link(client, api, database, runs):
    workspace_id = api.request("GET", "/me").json()["workspace"]["workspace_id"]
    experiment = new_experiment(api)
    link = make_link(api, experiment, runs=runs)
    person, reader = new_session(database, workspace_id), f"tbhub_read={link['token']}"
    page = f"/experiment/{experiment}/"
    navigation = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "same-origin"}

    def show(*cookies):
        headers = {**navigation, "Accept": "text/html", "Cookie": "; ".join(cookies)}
        return client.get(page, headers=headers).text

    signed_in = cookie_of(person)["Cookie"]
    assert "?link=leave" in show(signed_in, reader)
    assert "?link=leave" not in show(reader)
    headers = {"Cookie": f"{signed_in}; {reader}"}
    left = client.get(f"{page}?link=leave", headers=headers, follow_redirects=False)
    assert (left.status_code, left.headers["location"]) == (303, page)
    assert left.headers["set-cookie"].startswith('tbhub_read=""; expires=')
    assert f"Path={page}" in left.headers["set-cookie"]
    assert ">Private<" in show(signed_in)


def test_own_page_tells_end_of_link(client, api):
    experiment = new_experiment(api)
    link = make_link(api, experiment)
    about, cookie = f"/experiment/{experiment}/about", {"Cookie": f"tbhub_read={link['token']}"}
    assert client.get(about, headers=cookie).status_code == 200
    api.request("DELETE", f"/experiments/{experiment}/links/{link['id']}").raise_for_status()
    ended = client.get(about, headers={**cookie, "Accept": "text/html"})
    assert (ended.status_code, "it has ended" in ended.text) == (401, True)


def menu_of(client, api, experiment):
    answer = client.get(f"/experiment/{experiment}/", headers=api.headers)
    return re.findall(r'href="(download/.*?)"', answer.text)


def test_downloads_equal_what_api_returns(client, api):
    experiment = new_experiment(api, name="Réseau 1/2")
    assert menu_of(client, api, experiment) == ["download/scalars.csv", "download/scalars.parquet"]
    series = [texts("note", [1, 2], [b"a", b"b"]), images("photo", [1], [[b"1", b"1", b"png"]])]
    api.write(experiment, segment(stream("more"), 0, 9, scalars("long", range(3_000)), *series))
    path = f"/experiments/{experiment}/runs/more/hparams"
    api.request("PUT", path, json={"hparams": {"lr": 0.1}}).raise_for_status()
    menu = menu_of(client, api, experiment)
    assert len(menu) == 8
    for path in menu:
        kind, name = path.removeprefix("download/").split(".")
        file = client.get(f"/experiment/{experiment}/{path}", headers=api.headers)
        query = {"sampling": "all", "format": name}
        read = "tables/sessions" if kind == "sessions" else f"{kind}/data"
        query = {"format": name} if kind == "sessions" else query
        of_api = api.request("GET", f"/experiments/{experiment}/{read}", params=query)
        assert (file.status_code, file.content) == (200, of_api.content), path
        assert file.headers["content-type"] == of_api.headers["content-type"]
        expected = f"attachment; filename=\"R_seau 1_2-{kind}.{name}\"; filename*=UTF-8''R%C3%A9seau%201_2-{kind}.{name}"
        assert file.headers["content-disposition"] == expected
        assert file.headers["cache-control"] == "no-store"
        assert "content-length" not in file.headers
        head = client.head(f"/experiment/{experiment}/{path}", headers=api.headers)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-disposition"] == expected
    for path in ("download/scalars.json", "download/scalars", "download/runs.csv", "download/"):
        assert (
            client.get(f"/experiment/{experiment}/{path}", headers=api.headers).status_code == 404
        )


NAMES = {
    "": "experiment",
    "..": "experiment",
    ' "a";\r\nX: y\\<b>?*| ': "_a_;__X_ y__b____",
    "\u202egpj.exe": "_gpj.exe",
    "100%": "100%",
    "x" * 200: "x" * 100,
}


def test_file_has_name_that_every_system_takes(client, api):
    for name, kept in NAMES.items():
        experiment = new_experiment(api, name=name)
        answer = client.head(f"/experiment/{experiment}/download/scalars.csv", headers=api.headers)
        plain, coded = re.fullmatch(
            r"attachment; filename=\"([^\"%]*)\"; filename\*=UTF-8''(\S*)",
            answer.headers["content-disposition"],
        ).groups()
        assert (plain, unquote(coded)) == (
            f"{kept.replace('%', '_')}-scalars.csv",
            f"{kept}-scalars.csv",
        )


def test_file_that_cannot_be_sent_now_says_why_and_where_to_go(client, api, monkeypatch):
    monkeypatch.setattr(limits, "QUEUE_WAIT_SECONDS_MAX", 0.1)
    experiment = new_experiment(api)
    address = f"/experiment/{experiment}/download/scalars.csv"
    with used_up(client.app.state.shares.streams, FULL_SCAN_STREAMS_MAX):
        busy = client.get(address, headers=api.headers)
        assert client.head(address, headers=api.headers).status_code == 200
        assert client.get(address).status_code == 401
    assert busy.status_code == 429
    assert busy.headers["retry-after"]
    assert "content-disposition" not in busy.headers
    assert STATE_HEADER not in busy.headers
    assert "streams at full resolution" in busy.text
    assert 'href="../"' in busy.text
    for _ in range(2):
        assert client.get(address, headers=api.headers).status_code == 200


def test_form_in_place_of_file_leads_to_page(client, api):
    experiment = new_experiment(api)
    form = client.get(
        f"/experiment/{experiment}/download/scalars.csv", headers={"Cookie": "tbhub_read=tbh_stale"}
    )
    assert form.status_code == 401
    assert "has expired or was revoked" in form.text
    assert 'action="../"' in form.text


def test_page_travels_compressed_to_who_takes_it_so(client, api):
    experiment = new_experiment(api)
    plain, packed, smaller = (
        client.get(f"/experiment/{experiment}/", headers={**api.headers, "Accept-Encoding": kind})
        for kind in ("identity", "gzip", "gzip, br, zstd")
    )
    # The client unpacks gzip, and knows no zstd.
    unpacked = pa.Codec("zstd").decompress(smaller.content, len(plain.content), asbytes=True)
    assert plain.content == packed.content == unpacked
    codings = [each.headers.get("content-encoding") for each in (plain, packed, smaller)]
    assert codings == [None, "gzip", "zstd"]
    assert int(packed.headers["content-length"]) < len(plain.content) / 4
    assert {each.headers["vary"] for each in (plain, packed, smaller)} == {"Accept-Encoding"}


def test_empty_experiment_says_how_to_upload_until_there_is_data(client, api):
    experiment = api.new_experiment(name=HOSTILE, description=HOSTILE)
    address = f"/experiment/{experiment}/"
    for answer in (
        client.get(address, headers=api.headers),
        client.head(address, headers=api.headers),
    ):
        assert (answer.status_code, answer.headers[STATE_HEADER]) == (200, "data")
    empty = client.get(address, headers=api.headers)
    assert (
        f"tbupload --logdir runs/ --experiment {experiment} --server http://testserver"
        in empty.text
    )
    assert "<script>alert" not in empty.text
    assert is_allowed(empty, "script")
    assert is_allowed(empty, "style")
    api.write(experiment, segment(stream(), 0, 100, scalars("loss", [0])))
    assert STATE_HEADER not in client.head(address, headers=api.headers).headers


def test_page_of_ended_link_hides_deleted_experiment(client, api):
    experiment = new_experiment(api)
    stale = {"Cookie": "tbhub_read=tbh_stale"}
    ended, gone = (
        client.get(f"/experiment/{id_}/", headers=stale) for id_ in (experiment, experiment[::-1])
    )
    assert "has expired or was revoked" in ended.text
    # They name the page, to come back to it after a sign-in, and differ in nothing else.
    told = gone.text.replace(experiment[::-1], experiment)
    assert (ended.status_code, ended.text) == (gone.status_code, told)
    assert "has expired or was revoked" not in client.get(f"/experiment/{experiment}/").text


@pytest.fixture
def close_database(servers, shared_settings):
    """Make the module's database unavailable until the end of the test."""
    name = database_name(shared_settings.database_url.get_secret_value())
    allow = "ALTER DATABASE {} ALLOW_CONNECTIONS {}"
    with servers.instance.postgres.connect_as_superuser("postgres") as db:

        def close():
            db.execute(sql.SQL(allow).format(sql.Identifier(name), sql.SQL("false")))
            db.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
            )

        yield close
        db.execute(sql.SQL(allow).format(sql.Identifier(name), sql.SQL("true")))


def test_while_database_is_away_page_says_so_and_asks_again(client, api, close_database):
    experiment = new_experiment(api, visibility="link")
    close_database()
    for query in ("", "?token=tbh_any"):
        answer = client.get(f"/experiment/{experiment}/{query}")
        assert (answer.status_code, answer.headers[STATE_HEADER]) == (503, "server")
        assert "Nothing was lost" in answer.text
        assert answer.headers["retry-after"]
    file = client.get(f"/experiment/{experiment}/download/scalars.csv")
    assert (file.status_code, "This file cannot be sent now" in file.text) == (503, True)
