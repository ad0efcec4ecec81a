"""Mask what looks like a secret in a command line, before it is recorded.

Nothing can recognize every secret: what may be one is masked. What is kept is checked by the
names of options, variables and keys, by the form of known tokens, and by how random a text looks.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from typing import Any, Final

MASK: Final = "***"

ARGUMENT_CHARS_MAX: Final = 10_000
"""Characters of one argument that are looked at; the rest is dropped."""

DEPTH_MAX: Final = 6
"""Levels of commands in arguments and of JSON; what is deeper is masked as a whole."""

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

_SECRET_PARTS: Final = re.compile(
    "passw|passphrase|secret|credential|(?:api|auth|access|account|private|signing|license|wandb)"
    "-?key|(?:auth|access|refresh|id|api|bot|hf|user)token"
)
"""Parts of names, in lower case, without the separators of words."""

_PASSWORDS: Final = re.compile("pass|pwd|pw|secret|pin|otp")
"""Names whose values are masked even if they are numbers."""

_HARMLESS: Final = re.compile(
    r"[+-]?[\d.]{1,12}(?:e[+-]?\d+)?|true|false|none|null|yes|no", re.IGNORECASE
)
"""Values of other names: `--max-tokens 512` is no secret."""

_OPTION: Final = re.compile(r"-[A-Za-z]|--[A-Za-z][\w.-]*(?:[=:].*)?", re.DOTALL)

_USER_OPTIONS: Final = frozenset({"-u", "--user", "--userpwd", "--proxy-user"})
"""Options whose values are `user:password`."""

_NAMED: Final = re.compile(
    r"""([-+~/@$]*)(["']?[A-Za-z_][^\s=:"'{},;&?]*["']?)(\s*[=:]\s*)(.*)""", re.DOTALL
)

_NAME: Final = re.compile(r"""(["']?)([A-Za-z_][\w.\-\[\]]{0,200})\1(\s*[=:]\s*)""")
_VALUE: Final = re.compile(r"""("|')(?:[^"'\\]|\\.|(?!\1)["'])*\1?|[^\s,;&"'}\])]+""")
"""A name and its value, as in JSON, YAML, queries, and lists of settings."""

_URL: Final = re.compile(r"""([A-Za-z][A-Za-z0-9+.-]{0,30}://)([^\s"'<>|]*)""")
_LOGIN: Final = re.compile(r"(?<![\w/@:])([^\s/:@=\"',;]{1,200}):([^\s/@\"',;]{1,200})@(?=[\w\[])")
_SCHEME: Final = re.compile(r"\b(bearer|basic|token|apikey)(\s+)[^\s\"',;]+", re.IGNORECASE)

_KNOWN_TOKEN: Final = re.compile(
    r"tb[a-z]_[0-9A-Za-z]{20,}|(?:AKIA|ASIA|AGPA|AIDA)[0-9A-Z]{12,}|gh[a-z]_[0-9A-Za-z]{20,}"
    r"|github_pat_\w{20,}|gl[a-z]{2,5}-[\w-]{16,}|hf_[0-9A-Za-z]{16,}|api_org_[0-9A-Za-z]{16,}"
    r"|[srpw]k[-_](?:live_|test_|proj-|ant-|lf-|or-)?[0-9A-Za-z_-]{16,}|whsec_\w{16,}"
    r"|xox[a-z]-[\w-]{10,}|xapp-[\w-]{10,}|AIza[\w-]{30,}|ya29\.[\w.-]{10,}|npm_\w{20,}|pypi-[\w-]{16,}"
    r"|dckr_pat_[\w-]{16,}|SG\.[\w.-]{16,}|nvapi-[\w-]{16,}|r8_\w{16,}|gsk_\w{16,}|xai-\w{16,}"
    r"|dapi[0-9a-f]{16,}|eyJ[\w-]{8,}\.[\w.-]+|local-[0-9a-f]{32,}"
)
"""Tokens of this service, clouds, code hosts, registries and messengers; JSON Web Tokens."""

_CANDIDATE: Final = re.compile(r"[A-Za-z0-9+/_~-]{20,}={0,2}")
_HEX: Final = re.compile(r"(?:0x)?[0-9a-fA-F]{32,}")
_AWS_SECRET: Final = re.compile(r"[0-9A-Za-z/+]{40}")
_SEPARATORS_MAX: Final = 0.1
"""Share of separators up to which a text may be one random token: names of runs have more."""


def mask_secrets(arguments: Sequence[str], depth: int = 0) -> list[str]:
    """Return a command's arguments without what looks like a secret."""
    masked: list[str] = []
    before = ""
    for argument in arguments:
        argument = argument[:ARGUMENT_CHARS_MAX]  # noqa: PLW2901 - the rest is never looked at
        if _is_secret_name(before) and not _OPTION.fullmatch(argument):
            is_kept = _is_harmless(before, argument)
            masked.append(argument if is_kept else MASK)
        elif before in _USER_OPTIONS and ":" in argument:
            masked.append(f"{argument.partition(':')[0]}:{MASK}")
        else:
            masked.append(_mask_argument(argument, depth))
        is_option = argument.startswith("-") and not re.search("[=:]", argument)
        before = argument if is_option or argument.endswith((":", "=")) else ""
    return masked


def mask_text(text: str) -> str:
    """Return a text, such as a URL, without what looks like a secret."""
    return _mask_argument(text[:ARGUMENT_CHARS_MAX], 0)


def _mask_argument(argument: str, depth: int) -> str:
    if depth > DEPTH_MAX or "PRIVATE KEY-----" in argument:
        return MASK
    argument = _LOGIN.sub(rf"\1:{MASK}@", argument)
    named = _NAMED.fullmatch(argument)
    if named is not None and not named[4].startswith("//"):
        start, name, separator, value = named.groups()
        if _is_secret_name(name) and not _is_harmless(name, value):
            return f"{start}{name}{separator}{MASK}"
        return f"{start}{name}{separator}{_mask_argument(value, depth + 1)}"
    masked = None
    if argument[:1] in {"{", "["}:
        masked = _mask_json(argument, depth)
    elif any(map(str.isspace, argument)):
        masked = _mask_command(argument, depth)
    return _mask_parts(argument) if masked is None else masked


def _mask_json(text: str, depth: int) -> str | None:
    """Return JSON without secrets; None for what is no JSON, or has none."""
    try:
        content = json.loads(text)
        masked = _mask_content(content, depth)
    except (ValueError, RecursionError):
        return None
    return json.dumps(masked, ensure_ascii=False) if masked != content else None


def _mask_content(content: Any, depth: int) -> Any:
    if depth > DEPTH_MAX:
        return MASK
    if isinstance(content, str):
        return _mask_argument(content, depth + 1)
    if isinstance(content, list):
        if all(isinstance(each, str) for each in content):
            return mask_secrets(content, depth + 1)
        return [_mask_content(each, depth + 1) for each in content]
    if isinstance(content, dict):
        return {
            key: MASK
            if _is_secret_name(key) and not _is_harmless(key, str(value))
            else _mask_content(value, depth + 1)
            for key, value in content.items()
        }
    return content


def _mask_command(text: str, depth: int) -> str | None:
    """Return a command line in an argument, as of `sh -c`, without secrets; None if it has none."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    if len(words) < 2 or words == [text]:  # noqa: PLR2004 - one word is no command
        return None
    masked = mask_secrets(words, depth + 1)
    if masked == words:
        return None
    return _mask_parts(" ".join(each if each == MASK else shlex.quote(each) for each in masked))


def _mask_parts(text: str) -> str:
    """Mask names with values, URLs, and tokens anywhere in a text."""
    text = _SCHEME.sub(rf"\1\2{MASK}", text)
    text = _URL.sub(lambda url: url[1] + _mask_location(url[2]), text)
    text = _mask_pairs(text)
    text = _KNOWN_TOKEN.sub(MASK, text)
    return _CANDIDATE.sub(_mask_random, text)


def _mask_pairs(text: str) -> str:
    parts: list[str] = []
    end = 0
    for name in _NAME.finditer(text):
        value = _VALUE.match(text, name.end()) if name.start() >= end else None
        if value is None or value[0].startswith("//") or not _is_secret_name(name[2]):
            continue
        if not _is_harmless(name[2], value[0]):
            parts += [text[end : name.end()], f"{value[1] or ''}{MASK}{value[1] or ''}"]
            end = value.end()
    return "".join([*parts, text[end:]])


def _mask_location(location: str) -> str:
    """Return the part of a URL after `://` without user, password, query and fragment."""
    authority = re.split(r"[/?#\\]", location, maxsplit=1)[0]
    end = authority.rfind("@")
    if end < 0 and re.search(r":(?!\d*$)", authority) and not authority.startswith("["):
        end = location.rfind("@")  # the password has a slash
    start, rest = f"{MASK}@" if end >= 0 else "", location[end + 1 :]
    query, fragment = (f"{mark}{MASK}" if mark in rest else "" for mark in "?#")
    return f"{start}{re.split('[?#]', rest, maxsplit=1)[0]}{query}{fragment}"


def _mask_random(candidate: re.Match[str]) -> str:
    text = candidate[0]
    if text.startswith(("/", "~", "-")) or not _is_random(text):
        return "/".join(MASK if _is_random(each) else each for each in text.split("/"))
    return MASK


def _is_random(text: str) -> bool:
    """Return whether a text looks like a token: long, and its classes of characters alternate."""
    characters = re.sub(r"[^A-Za-z0-9]", "", text)
    if _HEX.fullmatch(text) and not text.isdigit():
        return True
    if len(text.rstrip("=")) - len(characters) > _SEPARATORS_MAX * len(text):
        return False
    classes = [each.isdigit() or (each.isupper() and 2) or 3 for each in characters]
    changes = sum(a != b for a, b in zip(classes, classes[1:]))
    kinds = len(set(classes))
    if kinds == 3:  # noqa: PLR2004 - upper case, lower case and digits
        length, share = 20, 0.3 if _AWS_SECRET.fullmatch(text) else 0.45
    elif kinds == 2:  # noqa: PLR2004 - of upper and lower case alone are names in camel case, too
        length, share = (24, 0.3) if any(map(str.isdigit, characters)) else (32, 0.4)
    else:
        return False
    return len(characters) >= length and changes >= share * len(characters)


def _is_secret_name(name: str) -> bool:
    """Return whether the value of an option, variable or key of this name is to be masked."""
    separated = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name)
    words = [word for word in re.split(r"[^a-z0-9]+", separated.lower()) if word]
    if not words:
        return False
    if _SECRET_WORDS.intersection(words) or _SECRET_PARTS.search("".join(words)):
        return True
    is_of_data = len(words) > 1 and words[-2] in _KEYS_OF_DATA
    return words[-1] in _SECRET_LAST_WORDS and not is_of_data


def _is_harmless(name: str, value: str) -> bool:
    return bool(_HARMLESS.fullmatch(value.strip("\"'"))) and not _PASSWORDS.search(name.lower())
