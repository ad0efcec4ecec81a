"""An OpenID provider that answers as each test wants: wrong tokens, wrong metadata, nothing at all."""

from __future__ import annotations

import base64
import hmac
import json
import time
from contextlib import contextmanager

from joserfc import jwt
from joserfc.jwk import RSAKey

from support.faulty_server import FaultyServer, Reply, running

CLIENT_ID = "tbhub"


class HostileOpenid(FaultyServer):
    """Answers of the provider; tests change its attributes.

    `claims` and `header` are merged into those of a valid ID token; None removes one. `key` signs;
    `published` are the keys it shows. `answers` replace an answer by path: (status, body), or a
    number of seconds to say nothing.
    """

    def __init__(self):
        super().__init__()
        self.issuer = self.url
        self._first_key = RSAKey.generate_key(2048, auto_kid=True)
        self.reset()

    def reset(self):
        """Answer as a provider should."""
        self.key = self._first_key
        self.published = [self.key]
        self.metadata = {}
        self.claims = {}
        self.header = {}
        self.userinfo = {}
        self.answers = {}
        self.requests = []

    @property
    def settings(self):
        """The settings of this service for the provider."""
        return {
            "id": "hostile",
            "name": "Hostile ID",
            "issuer": self.issuer,
            "client_id": CLIENT_ID,
        }

    def take(self, request):
        """Answer as the test wants."""
        path = request.path.partition("?")[0]
        self.requests.append(path)
        answer = self.answers.get(path)
        if isinstance(answer, float):
            time.sleep(answer)
            return Reply(fault="drop")
        status, content = answer or self.answer(path)
        headers = {"Content-Type": "application/json"}
        if status in {301, 302, 307}:
            headers["Location"] = f"{self.issuer}/elsewhere"
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        return Reply(status, body, headers)

    def answer(self, path):
        """Return status and JSON of the answer to a request."""
        if path == "/.well-known/openid-configuration":
            return 200, {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/auth",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
                "userinfo_endpoint": f"{self.issuer}/userinfo",
                **self.metadata,
            }
        if path == "/keys":
            return 200, {"keys": [key.as_dict(private=False) for key in self.published]}
        if path == "/token":
            return 200, {
                "access_token": "a",
                "token_type": "Bearer",
                "expires_in": 60,
                "id_token": self.id_token(),
            }
        return 200, {"sub": "eve", **self.userinfo}

    def id_token(self):
        """Return an ID token with the changes of the test."""
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "sub": "eve",
            "aud": CLIENT_ID,
            "iat": now,
            "exp": now + 60,
            "nonce": "n",
            "email": "eve@example.org",
            **self.claims,
        }
        header = {"alg": "RS256", "kid": self.key.kid, **self.header}
        return self.sign(_without_none(header), _without_none(claims))

    def sign(self, header, claims):
        """Return a JSON Web Token. By hand where the library refuses to forge."""
        if header["alg"] == "RS256":
            return jwt.encode(header, claims, self.key, algorithms=["RS256"])
        text = ".".join(_encode(json.dumps(content).encode()) for content in (header, claims))
        key = self.published[0].as_pem(private=False)
        is_signed = header["alg"] == "HS256"
        signature = hmac.digest(key, text.encode(), "sha256") if is_signed else b""
        return f"{text}.{_encode(signature)}"


def _without_none(fields):
    return {name: value for name, value in fields.items() if value is not None}


def _encode(content):
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


@contextmanager
def hostile_openid():
    """Run the provider."""
    with running(HostileOpenid()) as provider:
        yield provider
