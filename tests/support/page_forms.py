"""Our own pages without a browser: sign in, read the forms of a page, and post them."""

from __future__ import annotations

import re
from urllib.parse import urlencode

from support.people import SESSION_COOKIE, new_person, sign_in
from tbservice.auth import sign_in_links
from tbservice.pages.base.csrf import csrf_token

HTML = {"accept": "text/html,application/xhtml+xml", "sec-fetch-site": "same-origin"}


class PageReader:
    """A browser without scripts: it follows no redirects, and sends forms with their CSRF token."""

    def __init__(self, client, secret=None):
        self.client = client
        self.secret = secret

    def headers(self, **more):
        cookie = {"cookie": f"{SESSION_COOKIE}={self.secret}"} if self.secret else {}
        return {**HTML, **cookie, **{name.replace("_", "-"): value for name, value in more.items()}}

    def get(self, path, **headers):
        return self.client.get(path, headers=self.headers(**headers), follow_redirects=False)

    def post(self, path, fields=None, *, csrf=True, **headers):
        """Post a form; with its token unless `csrf` is False or another token."""
        fields = dict(fields or {})
        if csrf is True and self.secret:
            fields["csrf"] = csrf_token(self.secret)
        elif isinstance(csrf, str):
            fields["csrf"] = csrf
        sent = self.headers(content_type="application/x-www-form-urlencoded", **headers)
        return self.client.post(
            path, content=urlencode(fields, doseq=True), headers=sent, follow_redirects=False
        )


def new_reader(client, database, member=None):
    """Return a PageReader of a person who is signed in: `member` or a new one of no workspace."""
    return PageReader(client, sign_in(database, member or new_person(database)))


def new_link(database, member):
    """Return the secret of a new one-time sign-in link."""
    with database.transaction() as db:
        return sign_in_links.create_link(db, member.user_id)


def session_of(response):
    """Return the secret in the session cookie that a response sets; None if it sets none."""
    match = re.search(
        rf"(?:__Host-)?{SESSION_COOKIE}=(tbs_\w+);", response.headers.get("set-cookie", "")
    )
    return match and match[1]
