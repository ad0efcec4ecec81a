"""Keep of a command what is no secret: program, script, names of options, and plain values.

Nothing can recognize every secret, so an argument is masked unless it has a form that is kept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tbupload.recording.secret_names import is_password_name, is_secret_name
from tbupload.recording.token_forms import MASK, has_token

ARGUMENT_CHARS_MAX: Final = 200
"""Characters of an argument that may be kept; a longer one is masked."""

_NUMBER: Final = r"[+-]?(?:\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})(?:e[+-]?\d{1,4})?"
_SCALAR: Final = re.compile(
    rf"(?i)[\[(]?{_NUMBER}(?:,{_NUMBER})*[\])]?|true|false|yes|no|on|off|none|null"
)
"""A number, a list of numbers, or a boolean."""

_WORDS: Final = re.compile(r"[\w./~][\w./~,-]*|(?:cuda|npu|xpu|hpu):\d{1,3}", re.ASCII)
"""A word, a path, a list of words, or a device."""

_URL: Final = re.compile(r"[a-z][a-z\d+.-]*://[\w.-]+(?::\d{1,5})?(?:/[\w./~-]*)?", re.ASCII)
_PATH: Final = re.compile(r".*/.*|.*\.[A-Za-z]\w{0,9}", re.DOTALL)
_OPTION: Final = re.compile(r"--(?:[A-Za-z][\w.-]*)?", re.ASCII)
_SHORT: Final = re.compile(r"-([A-Za-z])\1*")
_GLUED: Final = re.compile(r"(-[A-Za-z]).+", re.DOTALL)
"""A letter with its value, as `-pPASSWORD`, or an option that begins with one dash."""

_NAMED: Final = re.compile(
    r"(--[A-Za-z][\w.-]*|[+~]{0,2}[A-Za-z_][\w./@-]*)=(.*)", re.ASCII | re.DOTALL
)
"""`--name=value`, and `name=value` as in Hydra's overrides."""

_SCRIPT: Final = re.compile(r"[\w./~-]+\.(?:py|sh|ipynb)", re.ASCII)
_PYTHON: Final = re.compile(r"(?:.*/)?(?:python[\d.]*|tbupload)")
_UNKNOWN_OPTION: Final = "--password"
"""Stand-in for an option of another form, such as one that is not ASCII: it may be a secret's."""

_LOGIN_WORDS: Final = re.compile(
    "login|logon|signin|add_?user|change_password|htpasswd|chpasswd|expect|send"
)
"""Words after which only names of options are kept."""

_IN_PATH: Final = re.compile(
    r"(?i)(/(?:tokens?|keys?|api-?keys?|secrets?|passwords?|(?:web)?hooks?)/).+"
)
"""Parts of a URL's path after which the rest is masked: an address that is a secret itself."""


def mask_secrets(arguments: Sequence[str]) -> list[str]:
    """Return a command's arguments, each masked unless it has a form that is kept.

    Kept are the program, scripts, names of options, and their values if these are numbers,
    booleans, words, paths, URLs, or lists of words or numbers, unless the name may be that of a
    secret or the value looks like a token. A value without a name, or after an option of one
    letter, is kept behind a script only, if it is a number, boolean or path:
    `docker login -p 1234` has a password. So is the word behind the script, a command of it.
    """
    masker = _ArgumentMasker()
    return [masker.mask(argument) for argument in arguments]


def mask_url(url: str) -> str:
    """Return a URL without user, password, query and fragment, and without tokens in its path."""
    start, query, _ = re.split(r"(\?|$)", url.partition("#")[0], maxsplit=1)
    scheme, mark, location = start.partition("://")
    _, at, location = location.rpartition("@")
    path = _IN_PATH.sub(rf"\1{MASK}", location)
    parts = [MASK if has_token(part) else part for part in path.split("/")]
    user, masked_query = f"{MASK}@" if at else "", f"?{MASK}" if query else ""
    return f"{scheme}{mark}{user}{'/'.join(parts)}{masked_query}"


class _ArgumentMasker:
    """Masks the arguments of a command, which are given one after the other."""

    def __init__(self) -> None:
        self._before = ""  # the argument before, or the secret name whose values these are
        self._is_first = True
        self._is_direct = False  # whether `_before` is the argument before
        self._has_script = False
        self._has_login = False

    def mask(self, argument: str) -> str:
        """Return the next argument, with what may be a secret replaced."""
        is_first, self._is_first = self._is_first, False
        if is_first and _is_plain(argument):
            self._has_script = bool(_SCRIPT.fullmatch(argument) or _PYTHON.fullmatch(argument))
            self._has_login = bool(_LOGIN_WORDS.fullmatch(argument.rpartition("/")[2]))
            self._before = argument
            return argument
        if argument.startswith("-") and not _SCALAR.fullmatch(argument):
            return self._mask_option(argument)
        return self._mask_value(argument)

    def _mask_option(self, argument: str) -> str:
        is_password = self._is_direct and is_secret_name(self._before)
        if argument == "--":  # it may stand between an option and its value: getopt(1) allows it
            self._before = self._before if is_secret_name(self._before) else ""
            self._is_direct = False
            return argument
        if named := _NAMED.fullmatch(argument):
            self._before, self._is_direct = "", False
            return self._mask_named(*named.groups())
        if _OPTION.fullmatch(argument) or (_SHORT.fullmatch(argument) and not is_password):
            self._before, self._is_direct = argument, True
            return argument if _is_name(argument) else MASK
        glued = _GLUED.fullmatch(argument)
        self._is_direct = False
        if is_password or glued is None:
            self._before = _UNKNOWN_OPTION
            return argument if argument == "-" else MASK
        self._before = glued[1]
        return f"{glued[1]}{MASK}"

    def _mask_named(self, name: str, value: str) -> str:
        if not _is_name(name) or value == "=":  # the end of a token in base64
            return MASK
        is_kept = not self._has_login and self._is_kept(name, value)
        return f"{name}={value if is_kept else MASK}"

    def _mask_value(self, argument: str) -> str:
        name, is_direct = self._before, self._is_direct
        self._is_direct = False
        self._has_login |= bool(_LOGIN_WORDS.fullmatch(argument))
        if self._has_login:
            return MASK
        if is_secret_name(name):  # all up to the next option are its values
            return argument if self._is_kept(name, argument) else MASK
        named = _NAMED.fullmatch(argument)
        self._before = "" if named else argument
        if named:
            return MASK if is_direct else self._mask_named(*named.groups())
        if is_direct and (name.startswith("--") or (name == "-m" and self._has_script)):
            return argument if self._is_kept(name, argument) else MASK
        is_script = bool(_SCRIPT.fullmatch(argument)) and not (is_direct and name.startswith("-"))
        is_data = self._has_script and bool(
            _SCALAR.fullmatch(argument) or _PATH.fullmatch(argument)
        )
        is_command = self._has_script and _SCRIPT.fullmatch(name) is not None
        is_kept = (is_script or is_data or is_command) and self._is_kept("", argument)
        # Another word may be another program, whose options have other meanings.
        self._has_script = is_kept and (is_script or is_data)
        return argument if is_kept else MASK

    @staticmethod
    def _is_kept(name: str, value: str) -> bool:
        """Return whether a value of this name is no secret."""
        if is_secret_name(name):
            return (
                bool(_SCALAR.fullmatch(value)) and "," not in value and not is_password_name(name)
            )
        return _is_plain(value) and not any(map(is_secret_name, value.split(",")))


def _is_plain(text: str) -> bool:
    """Return whether a text is a number, word, path, URL or list, and no token."""
    if len(text) > ARGUMENT_CHARS_MAX or has_token(text):
        return False
    if _URL.fullmatch(text):
        return mask_url(text) == text
    return (_SCALAR.fullmatch(text) or _WORDS.fullmatch(text)) is not None


def _is_name(text: str) -> bool:
    return len(text) <= ARGUMENT_CHARS_MAX and not has_token(text)
