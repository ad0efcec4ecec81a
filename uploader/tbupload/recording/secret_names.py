"""Names of options, variables and keys that hint at a secret."""

from __future__ import annotations

import re
from typing import Final

_SECRET_WORD: Final = re.compile(
    "tokens?|secrets?|password|passwd|passphrase|passcode|pwd|pw|pswd|psk|creds?|credentials?|auth"
    "|authorization|cookies?|bearer|jwt|t?otp|sas|dsn|sig|signature|session|private|salt|signing"
    "|body|kennwort|senha|clave|contrasena|wachtwoord|mdp|parola?|haslo|heslo|losenord"
    "|mnemonic|oauth2?|mfa|2fa|literal"
)
"""Words of names whose values are masked."""

_SECRET_LAST_WORD: Final = re.compile(
    "pass|pin|pat|keys?|apikey|access|[as]k|licen[sc]e|(?:web)?hook|hf|comet|wandb|neptune|clearml"
    "|openai|anthropic|slack|discord|telegram"
)
"""Words that mean a secret at the end of a name: `--pin-memory` and `--key-dim` are none."""

_KEY_OF_DATA: Final = re.compile(
    "batch|cache|column|data|dataset|dict|feature|foreign|image|input|label|metric|monitor|output"
    "|partition|primary|public|sort|text"
)
"""Words before `key` with which it is no secret."""

_SECRET_PARTS: Final = re.compile(
    "passw|passphrase|motdepasse|secret|credential|login|logon|signin|user"
    "|(?:api|auth|access|account|priv|private|signing|ssh|license|wandb)key"
    "|(?:auth|access|refresh|id|api|bot|hf)token"
    "|(?:store|key|db|pg|root|admin|my|smtp|ssh|src|dest)(?:pass|pw)$"
)
"""Parts of names, in lower case without separators; those of users may have `user:password`."""

_PASSWORDS: Final = re.compile("pass|pwd|pw|psk|secret|pin|otp|login|user|body")
"""Names whose values are masked even if they are numbers: `--max-tokens 512` is no secret."""


def is_secret_name(name: str) -> bool:
    """Return whether the value of an option, variable or key of this name may be a secret."""
    separated = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name)
    words = [word for word in re.split(r"[^a-z0-9]+", separated.lower()) if word]
    if any(map(_SECRET_WORD.fullmatch, words)) or _SECRET_PARTS.search("".join(words)):
        return True
    is_of_data = len(words) > 1 and _KEY_OF_DATA.fullmatch(words[-2])
    return bool(words and _SECRET_LAST_WORD.fullmatch(words[-1]) and not is_of_data)


def is_password_name(name: str) -> bool:
    """Return whether even a number may be a secret under this name."""
    return is_secret_name(name) and _PASSWORDS.search(name.lower()) is not None
