"""Mask what looks like a secret in a command line, before it is recorded.

Nothing can recognize every secret: what may be one is masked. What is kept is checked by the
names of options, variables and keys, by the form of known tokens, and by how random a text looks.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from enum import Enum, auto
from typing import Any, Final

from tbupload.recording.password_rules import (
    CommandRules,
    is_connective,
    is_login_option,
    split_user,
)
from tbupload.recording.secret_names import is_harmless, is_perhaps_secret, is_secret_name
from tbupload.recording.token_forms import MASK, mask_tokens


class _Until(Enum):
    """How many arguments are values of a secret name: up to an option, or to the command's end."""

    NEXT = auto()
    OPTION = auto()
    END = auto()


ARGUMENT_CHARS_MAX: Final = 10_000
"""Characters of one argument that are looked at; the rest is dropped."""

DEPTH_MAX: Final = 6
"""Levels of commands in arguments and of JSON; what is deeper is masked as a whole."""

_OPTION: Final = re.compile(r"-[A-Za-z]|--[A-Za-z][\w.-]*(?:[=:].*)?", re.DOTALL)

_AROUND: Final = "[](){}<>,;\"'`"
AROUND_CHARS_MAX: Final = 8
"""Brackets, quotes and commas around a word, and how many of them are no part of a secret."""

_WORD: Final = re.compile(r"[A-Za-z_][\w-]{0,200}")

_NAMED: Final = re.compile(
    r"""([-+~/@$]*)(["']?[A-Za-z_][^\s=:"'{},;&?]*["']?)(\s*[=:]\s*)(?!=*$)(.*)""", re.DOTALL
)
"""A name and its value; a text that ends with `=` may be base64, and has no value."""

_NAME: Final = re.compile(r"""(["']?)([A-Za-z_][\w.\-\[\]]{0,200})\1(\s*[=:]\s*)""")
_VALUE: Final = re.compile(r"""("|')(?:[^"'\\]|\\.|(?!\1)["'])*\1?|[^\s,;&"'}\])]+""")
"""A name and its value, as in JSON, YAML, queries, and lists of settings."""

_LISTED: Final = re.compile(r"""(["']?)([A-Za-z_][\w.\-]{0,200})\1(\s*,\s*)""")
"""A name before its value in a list."""

_ELEMENT: Final = re.compile(r"(<([A-Za-z_][\w.:-]{0,200})(?:\s[^<>]*)?>)[^<]+")
_NAME_KEYS: Final = "name|key|var|variable|field|property|option|param|parameter|setting"
_VALUE_KEYS: Final = "value|val|content|data|default"
_ENTRY: Final = re.compile(
    rf"""(?i)\b(?:{_NAME_KEYS})["']?\s*[=:]\s*["']?([A-Za-z_][\w.\-]{{0,200}})["']?[\s,;/]+["']?"""
    rf"""(?:{_VALUE_KEYS})["']?\s*[=:]\s*"""
)
"""An element of XML with its content; `name=PASSWORD, value=`, as in XML, JSON and YAML."""

_URL: Final = re.compile(r"""([A-Za-z][A-Za-z0-9+.-]{0,30}://)([^\s"'<>|]*)""")
_LOGIN: Final = re.compile(r"(?<![\w/@:])([^\s/:@=\"',;]{1,200}):([^\s/@\"',;]{1,200})@(?=[\w\[])")
_GLUED_USER: Final = re.compile(r"^(-[uUa][^:\s-][^:\s]*):.+", re.DOTALL)
_IN_PATH: Final = re.compile(
    r"(?i)(/(?:tokens?|keys?|api-?keys?|secrets?|passwords?|(?:web)?hooks?)/).+"
)
"""Parts of a path after which the rest is masked: an address that is a secret itself."""

_SCHEME: Final = re.compile(r"\b(bearer|basic|token|apikey)(\s+)[^\s\"',;]+", re.IGNORECASE)


def mask_secrets(arguments: Sequence[str], depth: int = 0) -> list[str]:
    """Return a command's arguments without what looks like a secret."""
    masker = _ArgumentMasker(CommandRules(arguments), depth)
    # What is over the limit is never looked at.
    return [masker.mask(argument[:ARGUMENT_CHARS_MAX]) for argument in arguments]


class _ArgumentMasker:
    """Masks the arguments of a command, which are given one after the other."""

    def __init__(self, rules: CommandRules, depth: int) -> None:
        self._rules = rules
        self._depth = depth
        self._before = ""
        self._name = ""  # of the secret that follows
        self._until = _Until.NEXT
        self._is_first = False

    def mask(self, argument: str) -> str:
        """Return the next argument without what looks like a secret."""
        if self._rules.begin(argument):
            self._name = ""
        is_word = self._rules.is_before_secrets(argument)
        if self._name and is_connective(argument):
            return argument
        if self._name and not is_word and not self._is_option(argument):
            if self._until is _Until.NEXT or argument.endswith(";"):
                name, self._name = self._name, ""
                return _mask_value(name, argument)
            self._is_first = False
            return _mask_value(self._name, argument)

        option = self._rules.find_password_option(argument)
        user = split_user(self._before, argument)
        is_user = is_login_option(self._before) and not argument.startswith("-")
        self._before = argument
        self._expect(argument, option, is_word=is_word)
        if is_user and user is None:
            self._name, self._until = "password", _Until.NEXT
        if user is not None:
            return f"{''.join(user)}{MASK}"
        if option is not None:
            return argument if argument == option else f"{option}{MASK}"
        return _mask_argument(argument, self._depth)

    def _is_option(self, argument: str) -> bool:
        """Return whether an argument is no value: the first one may be a password with a dash."""
        is_dashed = not self._is_first and argument.startswith("-")
        return is_dashed or _OPTION.fullmatch(argument) is not None

    def _expect(self, argument: str, option: str | None, *, is_word: bool) -> None:
        """Note whether a secret follows this argument."""
        self._is_first = True
        if is_word:
            self._name, self._until = "password", _Until.END
        elif option == argument:
            self._name, self._until = "password", _Until.NEXT
        elif argument.endswith((":", "=")) or not argument.startswith("-"):
            self._name, self._until = _secret_word(argument), _Until.NEXT
        elif not re.search("[=:]", argument) and is_secret_name(argument):
            is_sure = not is_perhaps_secret(argument)
            self._name, self._until = argument, _Until.OPTION if is_sure else _Until.NEXT
        elif self._until is not _Until.END:
            self._name = ""


def _mask_value(name: str, value: str) -> str:
    """Return the value of a secret name masked, with the brackets and commas around it."""
    inner = value.strip(_AROUND)
    if is_harmless(name, inner):
        return value
    start, _, end = value.partition(inner)
    return f"{start}{MASK}{end}" if inner and len(start + end) <= AROUND_CHARS_MAX else MASK


def _secret_word(argument: str) -> str:
    """Return an argument that is only a name whose value is a secret; else an empty text."""
    word = re.split(r"[./:\\]", argument.strip(_AROUND).rstrip(":="))[-1]
    is_secret = is_secret_name(word) and not is_perhaps_secret(word)
    return word if _WORD.fullmatch(word) and is_secret else ""


def mask_text(text: str) -> str:
    """Return a text, such as a URL, without what looks like a secret."""
    return _mask_argument(text[:ARGUMENT_CHARS_MAX], 0)


def _mask_argument(argument: str, depth: int) -> str:
    if depth > DEPTH_MAX or "PRIVATE KEY-----" in argument:
        return MASK
    argument = _mask_markup(_LOGIN.sub(rf"\1:{MASK}@", argument))
    argument = _GLUED_USER.sub(rf"\1:{MASK}", argument)
    named = _NAMED.fullmatch(argument)
    if named is not None and not named[4].startswith("//"):
        start, name, separator, value = named.groups()
        user = split_user(f"{start}{name}", value)
        if user is not None:
            return f"{start}{name}{separator}{''.join(user)}{MASK}"
        if is_secret_name(name) and not is_harmless(name, value):
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
        content = _mask_entry(content)
        return {
            key: MASK
            if is_secret_name(key) and not is_harmless(key, str(value))
            else _mask_content(value, depth + 1)
            for key, value in content.items()
        }
    return content


def _mask_entry(content: dict[str, Any]) -> dict[str, Any]:
    """Return `{"value": …, "name": "PASSWORD"}` without the value, in any order."""
    keys = {key.lower(): key for key in content}
    names = (content[keys[key]] for key in _NAME_KEYS.split("|") if key in keys)
    if not any(isinstance(name, str) and is_secret_name(name) for name in names):
        return content
    return {**content, **{keys[key]: MASK for key in _VALUE_KEYS.split("|") if key in keys}}


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
    text = _mask_pairs(_mask_pairs(text, _NAME), _LISTED)
    return mask_tokens(text)


def _mask_markup(text: str) -> str:
    """Mask the content of elements with secret names, and the values of pairs of name and value."""
    text = _ELEMENT.sub(
        lambda found: f"{found[1]}{MASK}" if is_secret_name(found[2]) else found[0], text
    )
    parts: list[str] = []
    end = 0
    for entry in _ENTRY.finditer(text):
        value = _VALUE.match(text, entry.end()) if entry.start() >= end else None
        if value is not None and is_secret_name(entry[1]):
            parts += [text[end : entry.end()], f"{value[1] or ''}{MASK}{value[1] or ''}"]
            end = value.end()
    return "".join([*parts, text[end:]])


def _mask_pairs(text: str, names: re.Pattern[str]) -> str:
    parts: list[str] = []
    end = 0
    for name in names.finditer(text):
        value = _VALUE.match(text, name.end()) if name.start() >= end else None
        if value is None or value[0].startswith("//") or not is_secret_name(name[2]):
            continue
        if not is_harmless(name[2], value[0]):
            parts += [text[end : name.end()], f"{value[1] or ''}{MASK}{value[1] or ''}"]
            end = value.end()
    return "".join([*parts, text[end:]])


def _mask_location(location: str) -> str:
    """Return the part of a URL after `://` without user, password, query and fragment.

    And without what follows a word like `token` or `webhook` in its path.
    """
    authority = re.split(r"[/?#\\]", location, maxsplit=1)[0]
    end = authority.rfind("@")
    if end < 0 and re.search(r":(?!\d*$)", authority) and not authority.startswith("["):
        end = location.rfind("@")  # the password has a slash
    start, rest = f"{MASK}@" if end >= 0 else "", location[end + 1 :]
    query, fragment = (f"{mark}{MASK}" if mark in rest else "" for mark in "?#")
    path = _IN_PATH.sub(rf"\1{MASK}", re.split("[?#]", rest, maxsplit=1)[0])
    return f"{start}{path}{query}{fragment}"
