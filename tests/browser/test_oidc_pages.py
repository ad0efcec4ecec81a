"""Sign-in at the certified OpenID provider in headless Chromium, from our button to our page."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from support import servers as support
from support.browser_pages import look_at, new_page
from support.openid import REDIRECT_URI, openid_provider
from tbservice.local.embedded.ports import choose_ports


@pytest.fixture(scope="module")
def service(shared_settings, tmp_path_factory):
    """A service with the provider, and the provider."""
    port = choose_ports(["service"], {})["service"]
    redirect_uri = REDIRECT_URI.format("local").replace("testserver", f"127.0.0.1:{port}")
    log = tmp_path_factory.mktemp("service") / "service.log"
    with openid_provider("local", redirect_uri=redirect_uri) as provider:
        more = {"TBHUB_OIDC_PROVIDERS": json.dumps([provider.settings])}
        with support.live_service(shared_settings, log, port=port, **more) as live:
            yield live, provider


def test_person_signs_in_at_provider_and_comes_back(browser, service):
    live, provider = service
    page = new_page(browser, live.url)
    look_at(page, f"{live.url}/me", "sign_in_with_provider")
    assert page.watch.problems == []
    page.watch.is_expected = lambda _problem: True  # the provider's pages are none of ours
    page.get_by_role("button", name="Continue with Example ID").click()

    page.wait_for_url(f"{provider.issuer}/**")
    page.locator('input[name="login"]').fill("alice")
    page.locator('input[name="password"]').fill("any")
    page.get_by_role("button", name="Sign-in").click()
    page.get_by_role("button", name="Continue").click()

    expect(page).to_have_url(f"{live.url}/me")
    expect(page.get_by_label("Name")).to_have_value("Alice Adams")
    cookies = {cookie["name"]: cookie for cookie in page.context.cookies(live.url)}
    assert cookies["tbhub_session"]["httpOnly"]
    assert "tbhub_sign_in" not in cookies  # ports share cookies: the others are the provider's
    page.context.close()
