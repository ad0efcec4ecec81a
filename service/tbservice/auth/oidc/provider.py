"""One OpenID Connect provider: its metadata and keys, and the exchange of codes for claims.

Calls block for up to `OIDC_SECONDS_MAX` each. At most `OIDC_CALLS_ITEMS_MAX` run at a time in a
worker, so that a slow provider cannot take the threads of all other requests.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Generic, TypeVar

import requests
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.requests_client import OAuth2Session
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet
from joserfc.jws import JWSRegistry

from tbservice.auth.oidc.authorization import Authorization
from tbservice.errors import Forbidden, Unavailable
from tbservice.settings import OidcProvider, require_tls

OIDC_SECONDS_MAX: Final = 10
"""Seconds that an OpenID provider may take for each answer."""

OIDC_METADATA_SECONDS: Final = 3600
"""Seconds after which a provider's metadata and keys are fetched again."""

OIDC_REFRESH_SECONDS_MIN: Final = 30
"""Seconds between two fetches of a provider's keys because a key was unknown."""

OIDC_CLOCK_SKEW_SECONDS_MAX: Final = 120
"""Seconds by which a provider's clock may differ from the server's."""

SIGNATURE_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256")
"""Signature algorithms of ID tokens that are accepted: never `none`, and none with a shared key."""

_Value = TypeVar("_Value")

_DISCOVERY_PATH: Final = "/.well-known/openid-configuration"
_ENDPOINTS: Final = ("authorization_endpoint", "token_endpoint", "jwks_uri")


class ProviderError(Unavailable):
    """The provider is unreachable, or answers in a way that its specification does not allow."""


class Provider:
    """A provider, with its metadata and keys cached for `OIDC_METADATA_SECONDS`."""

    def __init__(self, settings: OidcProvider, calls: threading.Semaphore) -> None:
        self.settings = settings
        self._calls = calls
        self._metadata = _Cached(self._fetch_metadata)
        self._keys = _Cached(self._fetch_keys)

    def authorization_url(self, authorization: Authorization) -> str:
        """Return the address at the provider to send the browser to. Raises ProviderError."""
        metadata = self._metadata.get()
        with self._session(metadata, authorization) as session:
            url, _ = session.create_authorization_url(
                metadata["authorization_endpoint"],
                state=authorization.state,
                code_verifier=authorization.code_verifier,
                nonce=authorization.nonce,
            )
        return str(url)

    def fetch_claims(self, authorization: Authorization, code: str) -> dict[str, Any]:
        """Return the claims about a person, for the code that the provider's redirect brought.

        Claims of the ID token, and of the userinfo endpoint if it names no e-mail address.

        Raises:
            Forbidden: The provider refuses the code (used, expired, of another sign-in), or its ID
                token is not valid for this sign-in.
            ProviderError: It is unreachable or answers nonsense.
        """
        metadata = self._metadata.get()
        with self._session(metadata, authorization) as session:
            token = self._exchange(session, metadata, authorization, code)
            claims = self._validate(token, authorization)
            if "email" not in claims and "userinfo_endpoint" in metadata:
                claims = self._add_userinfo(session, metadata["userinfo_endpoint"], claims)
        return claims

    def expected_issuer(self) -> str | None:
        """Return the `iss` that a redirect must have (RFC 9207); None if the provider sends none.

        Raises ProviderError.
        """
        metadata = self._metadata.get()
        is_sent = metadata.get("authorization_response_iss_parameter_supported") is True
        return str(metadata["issuer"]) if is_sent else None

    def _exchange(
        self,
        session: OAuth2Session,
        metadata: Mapping[str, Any],
        authorization: Authorization,
        code: str,
    ) -> Mapping[str, Any]:
        try:
            with self._call():
                token: Mapping[str, Any] = session.fetch_token(
                    metadata["token_endpoint"],
                    code=code,
                    code_verifier=authorization.code_verifier,
                    allow_redirects=False,
                )
        except AuthlibBaseError as error:
            raise Forbidden(
                f"{self.settings.name} refused to finish this sign-in ({error.error}): "
                "sign in again"
            ) from error
        except ValueError as error:
            raise ProviderError(f"{self.settings.name} answered no JSON object") from error
        if not isinstance(token.get("id_token"), str):
            raise ProviderError(f"{self.settings.name} sent no ID token")
        return token

    def _validate(self, token: Mapping[str, Any], authorization: Authorization) -> dict[str, Any]:
        """Return the claims of the ID token (OpenID Connect Core 1.0, section 3.1.3.7)."""
        settings = self.settings
        try:
            decoded = self._verify_signature(token["id_token"])
            claims = CodeIDToken(
                decoded.claims,
                decoded.header,
                {
                    "iss": {"essential": True, "values": [settings.issuer]},
                    "aud": {"essential": True, "values": [settings.client_id]},
                    "nonce": {"essential": True},
                },
                {
                    "nonce": authorization.nonce,
                    "client_id": settings.client_id,
                    "access_token": token.get("access_token"),
                },
            )
            claims.validate(leeway=OIDC_CLOCK_SKEW_SECONDS_MAX)
        except (JoseError, AuthlibBaseError, ValueError, TypeError, KeyError) as error:
            raise Forbidden(
                f"the answer of {settings.name} is not valid ({type(error).__name__}: {error}): "
                "sign in again; if it happens again, the clocks of the two servers may differ"
            ) from error
        if not isinstance(claims["sub"], str) or not claims["sub"]:
            raise ProviderError(f"{settings.name} does not say who signed in")
        return dict(claims)

    def _verify_signature(self, id_token: str) -> jwt.Token:
        registry = JWSRegistry(algorithms=list(SIGNATURE_ALGORITHMS), strict_check_header=False)
        try:
            return jwt.decode(id_token, self._keys.get(), registry=registry)
        except (InvalidKeyIdError, JoseError):
            # The provider may have new keys, or a new one under no name.
            return jwt.decode(id_token, self._keys.refresh(), registry=registry)

    def _add_userinfo(
        self, session: OAuth2Session, address: str, claims: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return claims with those of the userinfo endpoint, whose `sub` must be the same."""
        try:
            with self._call():
                answer = session.get(address, allow_redirects=False)
        except AuthlibBaseError as error:
            raise ProviderError(f"{self.settings.name} sent no usable access token") from error
        userinfo = self._parse(answer)
        if userinfo.get("sub") != claims["sub"]:  # OpenID Connect Core 1.0, section 5.3.2
            raise Forbidden(f"{self.settings.name} answered about another person: sign in again")
        return {**userinfo, **claims}

    def _session(self, metadata: Mapping[str, Any], authorization: Authorization) -> OAuth2Session:
        secret = self.settings.read_client_secret()
        methods = metadata.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        is_in_header = "client_secret_basic" in methods
        method = "client_secret_basic" if is_in_header else "client_secret_post"
        return OAuth2Session(
            self.settings.client_id,
            secret,
            token_endpoint_auth_method=method if secret else "none",
            scope=" ".join(self.settings.scopes),
            redirect_uri=authorization.redirect_uri,
            code_challenge_method="S256",
            leeway=0,  # else an access token of one minute would count as expired at once
            default_timeout=OIDC_SECONDS_MAX,
        )

    def _fetch_metadata(self) -> dict[str, Any]:
        """Fetch and check the provider's metadata (OpenID Connect Discovery 1.0, section 4)."""
        issuer = self.settings.issuer
        metadata = self._fetch(issuer.rstrip("/") + _DISCOVERY_PATH)
        if metadata.get("issuer") != issuer:
            raise ProviderError(
                f"{self.settings.name} says that its issuer is {metadata.get('issuer')!r}, not "
                f"{issuer!r}: set that one, to the letter"
            )
        for name in _ENDPOINTS:
            try:
                require_tls(str(metadata.get(name)))
            except ValueError as error:
                raise ProviderError(f"{self.settings.name}: its {name} {error}") from error
        return metadata

    def _fetch_keys(self) -> KeySet:
        try:
            keys: Any = self._fetch(self._metadata.get()["jwks_uri"])
            return KeySet.import_key_set(keys)
        except (JoseError, ValueError, TypeError, KeyError) as error:
            raise ProviderError(f"the keys of {self.settings.name} cannot be read") from error

    def _fetch(self, address: str) -> dict[str, Any]:
        with self._call():
            return self._parse(
                requests.get(address, timeout=OIDC_SECONDS_MAX, allow_redirects=False)
            )

    def _parse(self, answer: requests.Response) -> dict[str, Any]:
        """Return the JSON object of an answer. Raises ProviderError."""
        try:
            answer.raise_for_status()
            content = answer.json()
        except (requests.RequestException, json.JSONDecodeError) as error:
            raise ProviderError(
                f"{self.settings.name} answered {answer.status_code} where JSON was expected"
            ) from error
        if answer.status_code != requests.codes.ok or not isinstance(content, dict):
            raise ProviderError(f"{self.settings.name} answered no JSON object")
        return content

    @contextmanager
    def _call(self) -> Iterator[None]:
        """Make one call to the provider during the block. Raises ProviderError."""
        if not self._calls.acquire(timeout=OIDC_SECONDS_MAX):
            raise ProviderError(
                f"{self.settings.name} is slow, and many people sign in: try again in a minute"
            )
        try:
            yield
        except requests.RequestException as error:
            raise ProviderError(
                f"{self.settings.name} does not answer ({type(error).__name__}): try again later"
            ) from error
        finally:
            self._calls.release()


class _Cached(Generic[_Value]):
    """A value that is fetched when it is first needed, and again when it is old."""

    def __init__(self, fetch: Callable[[], _Value]) -> None:
        self._fetch = fetch
        self._lock = threading.Lock()
        self._value: _Value | None = None
        self._fetched_at = 0.0

    def get(self) -> _Value:
        """Return the value."""
        return self._get(OIDC_METADATA_SECONDS)

    def refresh(self) -> _Value:
        """Return a value that is at most `OIDC_REFRESH_SECONDS_MIN` old."""
        return self._get(OIDC_REFRESH_SECONDS_MIN)

    def _get(self, seconds_max: float) -> _Value:
        with self._lock:
            if self._value is None or time.monotonic() - self._fetched_at > seconds_max:
                self._value = self._fetch()
                self._fetched_at = time.monotonic()
            return self._value
