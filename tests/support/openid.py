"""A real OpenID provider, npm's certified `oidc-provider`, and people who sign in at it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import requests
from joserfc.jwk import RSAKey

from support.programs import find_node
from support.waiting import SECONDS_MAX
from tbservice.local.embedded.ports import choose_ports

DIRECTORY = Path(__file__).with_name("openid_provider")
CLIENT_ID = "tbhub"
CLIENT_SECRET = "a secret of 32 characters or more"
REDIRECT_URI = "http://testserver/sign-in/oidc/{}/callback"
STEPS_MAX = 10

ACCOUNTS = {
    "alice": {"email": "Alice@example.org", "email_verified": True, "name": "Alice Adams"},
    "mallory": {"email": "alice@example.org", "email_verified": False, "name": "Mallory"},
    "carol": {
        "email": "carol@elsewhere.example",
        "email_verified": True,
        "name": "Carol",
        "groups": ["ml", "physics"],
    },
    "nobody": {},
}
"""Claims by the login that one types at the provider."""


class OpenidProvider:
    """A running provider; `settings` are the settings of this service for it."""

    def __init__(self, port, id_="local", process=None):
        self._process = process
        self.issuer = f"http://127.0.0.1:{port}"
        self.settings = {
            "id": id_,
            "name": "Example ID",
            "issuer": self.issuer,
            "client_id": CLIENT_ID,
            "client_secret": CLIENT_SECRET,
            "scopes": ["openid", "email", "profile", "groups"],
        }

    def end_old_secret(self):
        """Accept only the new secret from now on."""
        self._process.send_signal(signal.SIGHUP)
        # After notices of the library.
        assert any(line == "replaced\n" for line in self._process.stdout)

    def sign_in(self, address, login):
        """Sign in as a browser would that was sent to `address`; return where it is sent back to."""
        with requests.Session() as browser:
            for _ in range(STEPS_MAX):
                answer = browser.get(address, allow_redirects=False, timeout=SECONDS_MAX)
                while answer.is_redirect:
                    address = urljoin(address, answer.headers["Location"])
                    if not address.startswith(self.issuer):
                        return address
                    answer = browser.get(address, allow_redirects=False, timeout=SECONDS_MAX)
                answer.raise_for_status()
                form = re.search(r'<form[^>]* action="([^"]+)"', answer.text)
                prompt = re.search(r'name="prompt" value="([^"]+)"', answer.text)
                fields = {"prompt": prompt[1], "login": login, "password": "any"}
                answer = browser.post(
                    urljoin(address, form[1]), fields, allow_redirects=False, timeout=SECONDS_MAX
                )
                address = urljoin(address, answer.headers["Location"])
                if not address.startswith(self.issuer):
                    return address
        raise AssertionError(f"the provider wants more than {STEPS_MAX} steps")


def path_and_query(address):
    """The path and query of an address of this service."""
    parts = urlsplit(address)
    return f"{parts.path}?{parts.query}"


@contextmanager
def openid_provider(id_="local", *, claims_in_id_token=True, redirect_uri=None, new_secret=None):
    """Run a provider; its process ends with the block.

    With `new_secret`, its client has two secrets until `end_old_secret`.
    """
    port = choose_ports(["openid"], {})["openid"]
    key = RSAKey.generate_key(2048, {"use": "sig", "alg": "RS256"}, private=True, auto_kid=True)
    configuration = {
        "port": port,
        "jwks": {"keys": [key.as_dict(private=True)]},
        "clients": [
            {
                "client_id": CLIENT_ID,
                "client_secret": CLIENT_SECRET,
                "redirect_uris": [redirect_uri or REDIRECT_URI.format(id_)],
            }
        ],
        "accounts": ACCOUNTS,
        "new_secret": new_secret,
        "claims_in_id_token": claims_in_id_token,
    }
    process = subprocess.Popen(
        [find_node(), "server.mjs"],
        cwd=DIRECTORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        process.stdin.write(json.dumps(configuration))
        process.stdin.close()
        assert process.stdout.readline() == "ready\n", "the provider did not start: run npm ci"
        yield OpenidProvider(port, id_, process)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
