"""The pages of people in headless Chromium: sign in by a link, account, workspace, invitation."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from support.browser_pages import has_drawing, look_again, look_at, new_page, open_as, shoot
from support.event_files import scalar_event, version_event, write_records
from support.page_forms import new_link
from support.people import new_member, new_person, sign_in
from support.quotas import set_quota
from support.servers import new_workspace
from tbservice.auth import grants, people
from tbservice.types.people import Role


@pytest.fixture(scope="module")
def workspace_id(live_service):
    return new_workspace(live_service.database_url).workspace_id


@pytest.fixture(scope="module")
def ann(database, workspace_id):
    """An owner of the workspace."""
    return new_member(database, workspace_id, Role.OWNER)


def test_link_of_this_machine_opens_pages_signed_in(page, live_service, database):
    address = f"{live_service.url}/sign-in/link?token={new_link(database, new_person(database))}"
    page.goto(f"{address}&next=/me")
    expect(page).to_have_url(f"{live_service.url}/me")
    expect(page.get_by_text("This browser", exact=True)).to_be_visible()
    page.watch.is_expected = lambda problem: "404" in problem
    look_at(page, address, "dead_link")
    expect(page.get_by_role("heading", level=1)).to_have_text("This link does not work any more")


def test_sign_in_pages_look_well(page, live_service, database):
    look_at(page, f"{live_service.url}/me", "sign_in")
    expect(page).to_have_url(f"{live_service.url}/sign-in?next=%2Fme")
    open_as(page, database, new_person(database, name="Bob Example"), live_service.url)
    ann = new_person(database, name="Ann Example")
    look_at(page, f"{live_service.url}/sign-in/link?token={new_link(database, ann)}", "link")
    expect(page.get_by_text("You are signed in as Bob Example")).to_be_visible()


def test_account_page_shows_tokens_and_browsers(page, live_service, database, ann):
    sign_in(database, ann)  # another browser
    open_as(page, database, ann, live_service.url)
    page.goto(f"{live_service.url}/me/token/new")
    page.get_by_label("Label").fill("Laptop")
    page.get_by_text("List and read all experiments").click()
    look_again(page, "token_new")
    page.keyboard.press("Tab")
    page.get_by_label("Label").press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Copy the token now")
    assert re.fullmatch(r"tbh_\w{38}", page.get_by_label("Laptop").input_value())
    expect(page.get_by_role("button", name="Copy")).to_be_visible()
    look_again(page, "token_created")
    page.get_by_role("link", name="Done").click()
    expect(page.get_by_text("never used")).to_be_visible()
    look_at(page, f"{live_service.url}/me", "me")
    page.get_by_role("button", name="Sign out all others").press("Enter")
    expect(page.get_by_role("status")).to_have_text("All other browsers were signed out.")
    page.get_by_role("button", name="Revoke the token Laptop").press("Enter")
    expect(page.get_by_text("Revoked", exact=True)).to_be_visible()


def test_person_of_no_workspace_creates_one(page, live_service, database):
    open_as(page, database, new_person(database, name=""), live_service.url)
    look_at(page, f"{live_service.url}/me", "me_without_workspace")
    page.get_by_role("link", name="New workspace").click()
    look_again(page, "workspace_new")
    page.keyboard.press("Tab")
    page.get_by_label("Name").fill("Vision <b>team</b>")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Vision <b>team</b>")
    expect(page.get_by_role("status")).to_contain_text("The workspace was created")


def test_invitation_makes_member(page, browser, live_service, database, ann, workspace_id):
    open_as(page, database, ann, live_service.url)
    address = f"{live_service.url}/workspace/{workspace_id}"
    for role in (Role.VIEWER, Role.EDITOR, Role.EDITOR):
        new_member(database, workspace_id, role)
    page.goto(address)
    page.get_by_label("E-mail address").fill("bob@example.org")
    page.get_by_role("region", name="Invite").get_by_label("Role").select_option("viewer")
    page.get_by_role("button", name="Create invitation link").press("Enter")
    link = page.get_by_label("Invitation link").input_value()
    look_again(page, "workspace_members")

    other = new_page(browser, live_service.url)
    look_at(other, link, "invitation_signed_out")
    bob = new_person(database, "bob@example.org", name="Bob Builder")
    open_as(other, database, bob, live_service.url)
    look_at(other, link, "invitation")
    other.get_by_role("button", name="Accept as Bob Builder").press("Enter")
    expect(other.get_by_role("status")).to_have_text("You are a member now.")
    look_again(other, "workspace_as_viewer")
    assert other.watch.problems == []
    other.context.close()

    page.goto(address)
    member = page.get_by_role("listitem").filter(has_text="Bob Builder")
    member.locator("summary").press("Enter")
    member.get_by_label("Role").select_option("editor")
    shoot(page, "member_menu")
    page.set_viewport_size({"width": 390, "height": 844})
    button = member.get_by_role("button", name="Remove from workspace")
    button.scroll_into_view_if_needed()
    expect(button).to_be_in_viewport(ratio=1)
    shoot(page, "member_menu.phone")
    page.keyboard.press("Escape")
    expect(member.get_by_role("button", name="Save role")).to_be_hidden()
    expect(member.locator("summary")).to_be_focused()
    member.locator("summary").press("Enter")
    button.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("The member was removed")


def test_invited_person_joins_and_sees_a_curve(
    page, browser, live_service, database, ann, uploader, tmp_path
):
    """With nothing but the link, in a browser of their own; then in another one."""
    workspace = uploader_workspace(database, uploader, ann)
    events = [version_event(), *(scalar_event("loss", step, 1 / (step + 1)) for step in range(100))]
    for run in ("eval", "train"):  # the first one's curve is almost grey
        write_records(tmp_path / run / "events.out.tfevents.1.host", events)
    uploader.run("--logdir", tmp_path, "--one-shot", "--name", "To be seen")
    open_as(page, database, ann, live_service.url)
    page.goto(f"{live_service.url}/workspace/{workspace}")
    page.get_by_label("E-mail address").fill("joe@example.org")
    page.get_by_role("button", name="Create invitation link").press("Enter")
    link = page.get_by_label("Invitation link").input_value()

    other = new_page(browser, live_service.url)
    look_at(other, link, "invitation_join")
    expect(other.get_by_label("E-mail address")).to_have_value("joe@example.org")
    expect(other.get_by_label("Your name")).to_be_focused()
    other.keyboard.type("Joe Joiner")
    other.keyboard.press("Enter")
    expect(other.get_by_role("heading", name="Welcome, Joe Joiner")).to_be_visible()
    look_again(other, "joined")
    other.get_by_role("link", name="See the experiments").click()
    other.get_by_role("link", name="To be seen").first.click()
    assert has_drawing(other.locator("card-view canvas").first)
    assert other.watch.problems == []

    other.goto(f"{live_service.url}/me")
    other.get_by_role("button", name="New sign-in link").press("Enter")
    look_again(other, "own_sign_in_link")
    own = other.get_by_label("Sign-in link for another browser").input_value()
    third = new_page(browser, live_service.url)
    third.goto(f"{own}&next=/me")
    expect(third.get_by_label("Name", exact=True)).to_have_value("Joe Joiner")
    for each in (other, third):
        each.context.close()


def test_tabs_of_workspace_look_well(page, live_service, database, ann, uploader, tmp_path):
    workspace_id = uploader_workspace(database, uploader, ann)
    address = f"{live_service.url}/workspace/{workspace_id}"
    set_quota(database, workspace_id, points=50_000, members=1)
    write_records(
        tmp_path / "train" / "events.out.tfevents.1.host",
        [version_event(), *(scalar_event("loss", step, 0.5) for step in range(2_000))],
    )
    ended = uploader.run("--logdir", tmp_path, "--one-shot", "--name", "Usage")
    assert ended.code == 0, ended.err
    experiment = ended.experiment_id
    open_as(page, database, ann, live_service.url)
    look_at(page, f"{address}/usage", "workspace_usage")
    expect(page.get_by_role("cell", name="2,000").first).to_be_visible()
    expect(page.get_by_role("meter", name="Points used")).to_be_visible()
    expect(page.get_by_text("of 50,000", exact=True)).to_be_visible()
    look_at(page, f"{address}/tokens", "workspace_tokens")
    look_at(page, f"{address}/settings", "workspace_settings")
    page.set_viewport_size({"width": 390, "height": 844})
    for tab in ("Members", "Tokens", "Share links", "Usage", "Settings"):  # none is cut off
        shown = page.locator(".tabs").get_by_role("link", name=tab)
        expect(shown).to_be_in_viewport(ratio=1)
    page.set_viewport_size({"width": 1400, "height": 900})
    page.goto(f"{live_service.url}/experiment/{experiment}/")
    back = page.locator("#tbhub-bar").get_by_role("link", name="Experiments")
    expect(page.locator("card-view canvas").first).to_be_visible()
    expect(page.locator("#tbhub-bar").get_by_role("link", name="Details")).to_have_attribute(
        "href", "about"
    )
    shoot(page, "bar_signed_in")
    page.wait_for_load_state("networkidle")
    back.click()
    expect(page).to_have_url(re.compile(r"/\?workspace=\d+$"))


def test_colours_are_chosen_and_kept(browser, live_service):
    context = browser.new_context(java_script_enabled=False, color_scheme="dark")
    page = context.new_page()

    def background():
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    def choose(name):
        colours = page.get_by_role("form", name="Colours")
        colours.get_by_role("button", name=name).click()
        expect(colours.get_by_role("button", pressed=True)).to_have_text(name)
        page.wait_for_load_state()  # also of the style

    page.goto(f"{live_service.url}/docs/uploading?from=here")
    dark = background()
    choose("Light")
    expect(page).to_have_url(f"{live_service.url}/docs/uploading?from=here")
    light = background()
    page.emulate_media(color_scheme="light")
    page.goto(f"{live_service.url}/sign-in")
    choose("Dark")
    assert background() == dark != light
    choose("System")
    assert background() == light
    context.close()


def uploader_workspace(database, uploader, member):
    """Make a person owner of the uploader's workspace; return its id."""
    with database.transaction() as db:
        workspace_id = grants.identify(db, uploader.token).workspace_id
        people.add_member(db, workspace_id, member.user_id, Role.OWNER)
    return workspace_id
