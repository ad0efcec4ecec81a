"""Uploads attack their readers, in a real browser, on one origin and on two: no script of them runs,
nothing asks another host, and a script that did run would find nothing of the reader.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import pytest
from playwright.sync_api import Error, expect

from support import servers as support
from support.browser_pages import SLOW_FRAMES, open_tab
from support.hostile_uploads import MARK, attacks, beacon, write_hostile_logdir
from support.people import SESSION_COOKIE, new_member, sign_in
from support.uploading import Uploader
from support.waiting import SECONDS_MAX, wait_until
from tbservice.db.database import Database
from tbservice.local.embedded.ports import choose_ports
from tbservice.types.people import Role

CONTENT = {
    "Time Series": "card-view",
    "Scalars": "tf-scalar-card",
    "Custom Scalars": "tf-custom-scalar-multi-line-chart-card",
    "Images": "tf-image-loader",
    "Graphs": "tf-graph-scene g.node",
    "Text": "tf-text-loader",
    "HParams": "tf-hparams-table-view",
    "Projector": "iframe",
}
"""A text or element of each dashboard that appears when it shows the upload."""

RUNNING_MS = 300
"""Time for a script to run that must not: no event tells that none did."""


ON_ONE_ORIGIN = pytest.mark.parametrize("site", ["one origin"], indirect=True)
"""A script there would have the session of the person; pages on two origins have the same policies."""


@dataclass
class Site:
    """A service with a hostile experiment; without a content origin, `content` is `public`."""

    public: str
    content: str
    database: Database
    workspace_id: int
    owner_token: str
    experiment: str
    other: str

    def page_of(self, experiment, origin=None):
        return f"{origin or self.public}/experiment/{experiment}/"

    def page_without_cards(self):
        """The page of the experiment for tests that ask what a script may do: cards take seconds."""
        return f"{self.page_of(self.experiment)}?tagFilter=nothing"


@pytest.fixture(scope="module")
def asked():
    with beacon() as asked:
        yield asked


@pytest.fixture(scope="module", params=["one origin", "two origins"])
def site(request, shared_settings, tmp_path_factory, asked):
    port = choose_ports(["service"], {})["service"]
    public, content = f"http://127.0.0.1:{port}", f"http://localhost:{port}"
    more = {"TBHUB_CONTENT_URL": content} if request.param == "two origins" else {}
    directory = tmp_path_factory.mktemp("hostile")
    write_hostile_logdir(directory / "logdir", asked.url)
    log = directory / "log"
    with support.live_service(shared_settings, log, port=port, **more) as live:
        workspace = support.new_workspace(live.database_url)
        uploader = Uploader(public, workspace.owner_token, directory)
        upload = ("--logdir", directory / "logdir", "--one-shot", "--new")
        name, described = attacks(asked.url)[2][:200], "\n\n".join(attacks(asked.url))
        ended = uploader.run(*upload, "--name", name, "--description", described)
        assert ended.code == 0, ended.err
        other = uploader.run(*upload, "--name", "Other").experiment_id
        database = Database(live.database_url, 2)
        yield Site(
            public,
            content if more else public,
            database,
            workspace.workspace_id,
            workspace.owner_token,
            ended.experiment_id,
            other,
        )
        database.close()


def signed_in_page(browser, site, *, bypass_csp=False):
    """Return a page of a new profile in which an owner is signed in, and the requests it makes."""
    person = new_member(site.database, site.workspace_id, Role.OWNER)
    context = browser.new_context(bypass_csp=bypass_csp, viewport={"width": 1400, "height": 900})
    cookie = {"name": SESSION_COOKIE, "value": sign_in(site.database, person), "url": site.public}
    context.add_cookies([{**cookie, "httpOnly": True, "sameSite": "Lax"}])
    page = context.new_page()
    page.set_default_timeout(SECONDS_MAX * 1000)
    page.add_init_script(SLOW_FRAMES)
    requests = []

    def note(request):
        requests.append(request)

    context.on("request", note)
    return page, requests


@pytest.fixture(scope="module")
def opened(browser, site):
    """A page in which a reader is signed in, for tests that leave it so, and its requests."""
    page, requests = signed_in_page(browser, site)
    yield page, requests
    page.context.close()


@pytest.fixture(scope="module")
def freed(browser, site):
    """A page of the hostile experiment without its policy, as if a script had got past it.

    The last test leaves it.
    """
    page, _ = signed_in_page(browser, site, bypass_csp=True)
    page.goto(site.page_without_cards())
    expect(page.locator("tb-webapp")).to_be_visible()
    yield page
    page.context.close()


def settle(page, requests):
    """Wait until the page has drawn what it loads, and asks for nothing more."""

    def is_idle():
        count = len(requests)
        page.evaluate("new Promise((done) => requestIdleCallback(done, { timeout: 1000 }))")
        # What the policy stopped, or a page that was left, has failed.
        return count == len(requests) and all(
            each.existing_response or each.failure for each in requests
        )

    wait_until(is_idle)


def check_nothing_ran(page, requests, site, asked):
    assert [frame.url for frame in page.frames if frame.evaluate("window.name") == MARK] == []
    assert asked.asked == []
    own = (f"{site.public}/", f"{site.content}/", "data:", "blob:")
    # Requests that the policy stopped are none: a beacon did not see them.
    sent = [each for each in requests if each.failure is None]
    assert [each.url for each in sent if not each.url.startswith(own)] == []
    if site.content != site.public:
        for each in sent:
            if each.url.startswith(f"{site.content}/"):
                assert SESSION_COOKIE not in each.all_headers().get("cookie", ""), each.url


@ON_ONE_ORIGIN
def test_no_script_of_upload_runs_in_any_dashboard(opened, site, asked):
    page, requests = opened
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    page.goto(site.page_of(site.experiment))
    for tab, content in CONTENT.items():
        open_tab(page, tab)
        expect(page.locator(content).first).to_be_visible()
        if tab == "Projector":
            projector = page.frame_locator("iframe")
            expect(projector.locator(".numDataPoints")).to_have_text("60")
        settle(page, requests)
        check_nothing_ran(page, requests, site, asked)


@ON_ONE_ORIGIN
def test_blob_that_is_opened_directly_runs_nothing(opened, site, asked):
    page, requests = opened
    page.goto(site.page_without_cards())
    assert page.url.startswith(site.content)
    runs = page.evaluate("fetch('data/plugin/images/tags').then(answer => answer.json())")
    addresses = []
    for run, tags in runs.items():
        for tag in tags:
            images = page.evaluate(
                "query => fetch('data/plugin/images/images?' + new URLSearchParams(query))"
                ".then(answer => answer.json())",
                {"run": run, "tag": tag, "sample": 0},
            )
            addresses += [f"data/plugin/images/individualImage?{each['query']}" for each in images]
    assert len(addresses) >= 5
    base = page.url.split("?")[0].split("#")[0]
    alone = page.context.new_page()
    for address in addresses[:5]:
        with suppress(Error):  # that a download begins
            alone.goto(base + address)
        alone.wait_for_timeout(RUNNING_MS)
        check_nothing_ran(alone, requests, site, asked)
        page.evaluate(
            """async address => {
                for (const [name, key] of [["object", "data"], ["embed", "src"], ["iframe", "src"]]) {
                    const element = document.createElement(name);
                    element[key] = address;
                    document.body.append(element);
                }
                await new Promise(done => setTimeout(done, 300));
            }""",
            address,
        )
        check_nothing_ran(page, requests, site, asked)
    alone.close()


@ON_ONE_ORIGIN
def test_our_own_pages_show_hostile_metadata_as_text(opened, site, asked):
    page, requests = opened
    texts = attacks(asked.url)
    with support.live_api(site.public, site.owner_token) as api:
        fields = {
            "notes": "\n\n".join(texts),
            "tags": [text[:50] for text in texts[:6]],
            "properties": {f"{number} {text[:40]}": text for number, text in enumerate(texts)},
        }
        answer = api.request("PATCH", f"/experiments/{site.experiment}", json=fields)
        assert answer.status_code == 200, answer.text
    here = f"/experiment/{site.experiment}"
    paths = ("/", "/?q=script", f"{here}/about", f"{here}/edit", f"{here}/links")
    for path in paths:
        assert page.goto(f"{site.public}{path}").status == 200, path
        page.wait_for_timeout(RUNNING_MS)
        assert page.locator("main :is(script, iframe, object, embed, style, link)").count() == 0
        assert page.locator("main :is([onerror], [onload], [onfocus], [ontoggle])").count() == 0
        assert page.locator("main [href^='javascript:'], main [href^='data:']").count() == 0
        check_nothing_ran(page, requests, site, asked)
    page.goto(f"{site.public}{here}/about")
    expect(page.locator("main")).to_contain_text(f"window.name='{MARK}'")


ASK = """async ([method, address]) => {
    const headers = {"Content-Type": "application/x-www-form-urlencoded"};
    const options = {method, credentials: "include", redirect: "follow"};
    if (method === "POST") Object.assign(options, {headers, body: "name=Eve&csrf=x"});
    try {
        const answer = await fetch(address, options);
        return `${answer.status} ${(await answer.text()).includes("csrf")}`;
    } catch (error) {
        return error.name;
    }
}"""


def test_policy_lets_page_ask_nothing_but_its_own(opened, site, asked):
    page, requests = opened
    page.goto(site.page_without_cards())
    expect(page.locator("tb-webapp")).to_be_visible()
    assert page.evaluate(ASK, ["GET", "data/runs"]).startswith("200")
    for address in ("/me", "/", f"/experiment/{site.other}/data/runs", "/api/v1/openapi.json"):
        assert page.evaluate(ASK, ["GET", address]) == "TypeError"
    settle(page, requests)
    check_nothing_ran(page, requests, site, asked)


def test_script_past_policy_reads_no_page_of_its_reader(freed, site):
    assert freed.evaluate(ASK, ["GET", "data/runs"]).startswith("200")
    one_origin = site.content == site.public
    about = f"/experiment/{site.other}/about"
    for path in (
        "/",
        about,
        "/me",
        f"/workspace/{site.workspace_id}",
        f"/experiment/{site.other}/links",
    ):
        answer = freed.evaluate(ASK, ["GET", f"{site.public}{path}"])
        assert answer == ("403 false" if one_origin else "TypeError"), path
    assert freed.evaluate("document.cookie") == ""
    shown = freed.evaluate(
        """async address => {
            const frame = document.createElement("iframe");
            frame.src = address;
            document.body.append(frame);
            await new Promise(done => { frame.onload = frame.onerror = done; });
            try { return frame.contentDocument?.body?.innerText ?? "nothing"; }
            catch (error) { return error.name; }
        }""",
        f"{site.public}/me",
    )
    assert "csrf" not in shown
    assert "sessions" not in shown.lower()
    with freed.expect_popup() as popup:
        window = freed.evaluate(
            """async address => {
                const opened = window.open(address);
                try {
                    while (!opened?.closed && opened?.location.href === "about:blank")
                        await new Promise(done => setTimeout(done, 50));
                    return opened?.closed ?? true ? "closed" : opened.document.body.innerHTML;
                } catch (error) { return error.name; }
            }""",
            f"{site.public}/me",
        )
    assert window in {"closed", "SecurityError"}
    expect(popup.value).to_have_url(f"{site.public}/me")


def test_script_past_policy_sends_no_form_of_its_reader(freed, site):
    one_origin = site.content == site.public
    for path in ("/me/name", "/sign-out", "/workspace/new"):
        answer = freed.evaluate(ASK, ["POST", f"{site.public}{path}"])
        assert answer == ("403 false" if one_origin else "TypeError"), path
    freed.evaluate(
        """address => {
            const form = document.createElement("form");
            Object.assign(form, {method: "post", action: address});
            document.body.append(form);
            form.submit();
        }""",
        f"{site.public}/sign-out",
    )
    # From another site, the cookie does not even come with it: nobody is signed out, and the
    # redirect to sign in ends at the list of the person who is.
    told = "You may not do this" if one_origin else "Experiments"
    expect(freed.get_by_role("heading", level=1)).to_have_text(told)
    freed.goto(f"{site.public}/me")
    expect(freed.get_by_role("heading", level=1)).to_be_visible()
    assert freed.url == f"{site.public}/me"


def test_what_was_opened_ends_with_sign_out(browser, site):
    page, _ = signed_in_page(browser, site)
    page.goto(site.page_of(site.experiment))
    expect(page.locator("tb-webapp")).to_be_visible()
    other_tab = page.context.new_page()
    other_tab.goto(f"{site.public}/me")
    other_tab.locator("form[action='/sign-out'] button").first.evaluate("button => button.click()")
    expect(other_tab).to_have_url(f"{site.public}/")
    assert page.evaluate(ASK, ["GET", "data/runs"]).startswith("401")
    page.reload()
    expect(page.get_by_label("Token or share link")).to_be_visible()
    page.get_by_role("link", name="Sign in").click()
    expect(page).to_have_url(f"{site.public}/sign-in?next=%2Fexperiment%2F{site.experiment}%2F")
    page.context.close()
