"""Which names of options, variables and keys are those of secrets."""

from __future__ import annotations

import re
from typing import Final

_SECRET_WORDS: Final = frozenset(
    [
        "token",
        "tokens",
        "secret",
        "secrets",
        "password",
        "passwd",
        "passphrase",
        "passcode",
        "pwd",
        "pw",
        "pswd",
        "psk",
        "cred",
        "creds",
        "credential",
        "credentials",
        "auth",
        "authorization",
        "cookie",
        "cookies",
        "bearer",
        "jwt",
        "otp",
        "totp",
        "sas",
        "dsn",
        "sig",
        "signature",
        "session",
        "private",
        "salt",
        "signing",
        "kennwort",
        "senha",
        "contrasena",
        "wachtwoord",
    ]
)
"""Words of names whose values are masked."""

_SECRET_LAST_WORDS: Final = frozenset(["pass", "pin", "key", "keys", "apikey"])
"""The same, as the last word of a name: `--pin-memory` and `--key-dim` are none."""

_KEYS_OF_DATA: Final = frozenset(
    [
        "batch",
        "cache",
        "column",
        "data",
        "dataset",
        "dict",
        "feature",
        "foreign",
        "image",
        "input",
        "label",
        "metric",
        "monitor",
        "output",
        "partition",
        "primary",
        "public",
        "sort",
        "text",
    ]
)
"""Words before `key` with which it is no secret."""

_PERHAPS_SECRET: Final = frozenset(
    ["access", "license", "licence", "hf", "comet", "wandb", "neptune", "clearml"]
)
"""Last words of names whose values, as that of `-p`, are masked if they look like passwords."""

_LIKE_PASSWORD: Final = re.compile(r"(?=.*[A-Za-z])(?=.*[0-9!@#$%^&*?])[^\s/\\.,=\[\]{}]{6,}")
"""Letters, and also digits or symbols; no path, no file, no list."""

_SECRET_PARTS: Final = re.compile(
    "passw|passphrase|secret|credential|(?:api|auth|access|account|private|signing|license|wandb)"
    "-?key|(?:auth|access|refresh|id|api|bot|hf|user)token"
    "|(?:store|key|user|db|root|admin|my|smtp|ssh|src|dest)pass$"
)
"""Parts of names, in lower case, without the separators of words."""

_PASSWORDS: Final = re.compile("pass|pwd|pw|psk|secret|pin|otp")
"""Names whose values are masked even if they are numbers."""

_HARMLESS: Final = re.compile(
    r"[+-]?[\d.]{1,12}(?:e[+-]?\d+)?|true|false|none|null|yes|no", re.IGNORECASE
)
"""Values of other names: `--max-tokens 512` is no secret."""


def is_secret_name(name: str) -> bool:
    """Return whether the value of an option, variable or key of this name is to be masked.

    Unless it is harmless: `is_harmless`.
    """
    return _is_of_secret(name) or is_perhaps_secret(name)


def is_perhaps_secret(name: str) -> bool:
    """Return whether the name may be that of a secret, of a setting, or of anything else."""
    words = _words(name)
    is_listed = name == "-p" or (bool(words) and words[-1] in _PERHAPS_SECRET)
    return is_listed and not _is_of_secret(name)


def is_harmless(name: str, value: str) -> bool:
    """Return whether a value of such a name is none of a secret, as in `--max-tokens 512`."""
    inner = value.strip("\"'")
    if is_perhaps_secret(name):
        return not _LIKE_PASSWORD.fullmatch(inner)
    return bool(_HARMLESS.fullmatch(inner)) and not _PASSWORDS.search(name.lower())


def _is_of_secret(name: str) -> bool:
    words = _words(name)
    if _SECRET_WORDS.intersection(words) or _SECRET_PARTS.search("".join(words)):
        return True
    is_of_data = len(words) > 1 and words[-2] in _KEYS_OF_DATA
    return bool(words) and words[-1] in _SECRET_LAST_WORDS and not is_of_data


def _words(name: str) -> list[str]:
    separated = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name)
    return [word for word in re.split(r"[^a-z0-9]+", separated.lower()) if word]
