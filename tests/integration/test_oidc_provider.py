"""OpenID providers: the certified one's answers are accepted, and nothing that is forged."""

import threading
import time
from urllib.parse import parse_qs, urlsplit

import pytest
from joserfc.jwk import RSAKey

from support.hostile_openid import hostile_openid
from support.openid import REDIRECT_URI, openid_provider
from tbservice.auth.oidc.authorization import Authorization
from tbservice.auth.oidc.provider import Provider, ProviderError
from tbservice.auth.oidc.sign_in import OIDC_CALLS_ITEMS_MAX
from tbservice.errors import Forbidden
from tbservice.settings import OidcProvider

VERIFIER = "v" * 43
DAY = 86_400


def authorization(id_="local", nonce="n", verifier=VERIFIER):
    return Authorization("state", nonce, verifier, REDIRECT_URI.format(id_))


def open_provider(settings):
    return Provider(OidcProvider(**settings), threading.Semaphore(OIDC_CALLS_ITEMS_MAX))


@pytest.fixture(scope="module", params=[True, False], ids=["in_id_token", "at_userinfo"])
def certified(request):
    with openid_provider(claims_in_id_token=request.param) as provider:
        yield provider


def code_of(certified, provider, login, nonce="n"):
    back = certified.sign_in(provider.authorization_url(authorization(nonce=nonce)), login)
    parameters = parse_qs(urlsplit(back).query)
    assert parameters["state"] == ["state"]
    assert parameters["iss"] == [certified.issuer]
    return parameters["code"][0]


def test_claims_come_from_a_certified_provider(certified):
    provider = open_provider(certified.settings)
    claims = provider.fetch_claims(authorization(), code_of(certified, provider, "carol"))
    assert claims["sub"] == "carol"
    assert claims["email"] == "carol@elsewhere.example"
    assert claims["email_verified"] is True
    assert claims["groups"] == ["ml", "physics"]
    assert provider.expected_issuer() == certified.issuer


def test_code_is_worth_one_sign_in_with_its_verifier(certified):
    provider = open_provider(certified.settings)
    code = code_of(certified, provider, "alice")
    with pytest.raises(Forbidden, match="sign in again"):
        provider.fetch_claims(authorization(verifier="w" * 43), code)

    code = code_of(certified, provider, "alice")
    assert provider.fetch_claims(authorization(), code)["sub"] == "alice"
    with pytest.raises(Forbidden, match="sign in again"):
        provider.fetch_claims(authorization(), code)


def test_code_of_another_sign_in_is_refused_by_nonce(certified):
    provider = open_provider(certified.settings)
    code = code_of(certified, provider, "alice", nonce="another")
    with pytest.raises(Forbidden, match="nonce"):
        provider.fetch_claims(authorization(), code)


@pytest.fixture(scope="module")
def hostile_server():
    with hostile_openid() as provider:
        yield provider


@pytest.fixture
def hostile(hostile_server):
    hostile_server.reset()
    return hostile_server


def fetch(hostile):
    return open_provider(hostile.settings).fetch_claims(authorization("hostile"), "code")


def test_valid_id_token_is_accepted(hostile):
    assert fetch(hostile)["sub"] == "eve"


@pytest.mark.parametrize(
    "claims",
    [
        {"nonce": "other"},
        {"nonce": None},
        {"iss": "https://id.example.org"},
        {"iss": None},
        {"aud": "another-client"},
        {"aud": None},
        {"aud": ["tbhub", "another-client"]},
        {"azp": "another-client"},
        {"exp": 1},
        {"exp": None},
        {"iat": 4_000_000_000},
        {"sub": None},
        {"sub": 7},
        {"sub": ""},
        {"at_hash": "AAAA"},
    ],
)
def test_id_token_with_wrong_claims_is_refused(hostile, claims):
    hostile.claims = claims
    with pytest.raises((Forbidden, ProviderError)):
        fetch(hostile)


def test_clock_that_differs_by_a_minute_is_accepted(hostile):
    now = int(time.time())
    hostile.claims = {"iat": now + 60, "exp": now + 120}
    assert fetch(hostile)["sub"] == "eve"
    hostile.claims = {"iat": now - 180, "exp": now - 60}
    assert fetch(hostile)["sub"] == "eve"
    hostile.claims = {"iat": now - DAY, "exp": now - DAY + 60}
    with pytest.raises(Forbidden, match="clocks"):
        fetch(hostile)


def sign_with_another_key(hostile):
    hostile.key = RSAKey.generate_key(2048, auto_kid=True)


def sign_with_another_key_of_that_name(hostile):
    hostile.header = {"kid": hostile.key.kid}
    hostile.key = RSAKey.generate_key(2048)


def sign_with_the_public_key(hostile):
    hostile.header = {"alg": "HS256"}  # with the public key as the secret that both share


def sign_not_at_all(hostile):
    hostile.header = {"alg": "none", "kid": None}


@pytest.mark.parametrize(
    "forge",
    [
        sign_with_another_key,
        sign_with_another_key_of_that_name,
        sign_with_the_public_key,
        sign_not_at_all,
    ],
)
def test_forged_signature_is_refused(hostile, forge):
    forge(hostile)
    with pytest.raises(Forbidden):
        fetch(hostile)


def test_new_keys_of_a_provider_are_fetched(hostile, monkeypatch):
    provider = open_provider(hostile.settings)
    assert provider.fetch_claims(authorization("hostile"), "code")["sub"] == "eve"
    hostile.key = RSAKey.generate_key(2048, auto_kid=True)
    hostile.published = [hostile.key]
    with pytest.raises(Forbidden):
        provider.fetch_claims(authorization("hostile"), "code")
    assert hostile.requests.count("/keys") == 1

    monkeypatch.setattr("tbservice.auth.oidc.provider.OIDC_REFRESH_SECONDS_MIN", 0)
    assert provider.fetch_claims(authorization("hostile"), "code")["sub"] == "eve"
    assert hostile.requests.count("/keys") == 2


def test_userinfo_about_another_person_is_refused(hostile):
    hostile.claims = {"email": None}
    hostile.userinfo = {"sub": "mallory", "email": "mallory@example.org"}
    with pytest.raises(Forbidden, match="another person"):
        fetch(hostile)


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/.well-known/openid-configuration", (500, b"oops")),
        ("/.well-known/openid-configuration", (200, b"<html>")),
        ("/.well-known/openid-configuration", (200, b"[]")),
        ("/.well-known/openid-configuration", (302, b"")),
        ("/keys", (404, b"{}")),
        ("/keys", (200, b'{"keys": 7}')),
        ("/keys", (200, b'{"keys": [{"kty": "RSA"}]}')),
        ("/token", (500, b"oops")),
        ("/token", (200, b"null")),
        ("/token", (200, b'{"access_token": "a", "id_token": 7}')),
        ("/token", (400, b'{"error": "invalid_grant"}')),
        ("/token", (302, b"")),
    ],
)
def test_broken_answer_is_an_error_in_words(hostile, path, answer):
    hostile.answers[path] = answer
    with pytest.raises((ProviderError, Forbidden), match="Hostile ID"):
        fetch(hostile)


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "https://id.example.org"},
        {"token_endpoint": "http://id.example.org/token"},
        {"authorization_endpoint": None},
        {"jwks_uri": "file:///etc/passwd"},
    ],
)
def test_metadata_that_lead_elsewhere_are_refused(hostile, metadata):
    hostile.metadata = metadata
    with pytest.raises(ProviderError, match="Hostile ID"):
        fetch(hostile)


def test_provider_that_says_nothing_is_given_up(hostile, monkeypatch):
    monkeypatch.setattr("tbservice.auth.oidc.provider.OIDC_SECONDS_MAX", 0.2)
    hostile.answers["/keys"] = 0.5
    with pytest.raises(ProviderError, match="does not answer"):
        fetch(hostile)


def test_slow_provider_takes_few_threads(hostile, monkeypatch):
    monkeypatch.setattr("tbservice.auth.oidc.provider.OIDC_SECONDS_MAX", 0.2)
    provider = Provider(OidcProvider(**hostile.settings), threading.Semaphore(0))
    with pytest.raises(ProviderError, match="slow"):
        provider.expected_issuer()
    assert hostile.requests == []
