"""Where commands have passwords that no name tells: by programs, their options, and words.

The rules are data, so that a form that was missed is one more row. An option is looked for in all
arguments after its program: that `docker run -p` is no password costs little.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

_DATABASES: Final = (
    "mysql mysqldump mysqladmin mysqlimport mysqlshow mysqlsh mariadb mariadb-dump mongo mongosh "
    "mongodump mongorestore mongoexport mongoimport cqlsh snowsql beeline clickhouse-client"
)
_CONTAINERS: Final = "docker podman nerdctl buildah skopeo helm oc cf az crane oras"
_ARCHIVES: Final = "7z 7za 7zr rar unrar"
_LDAP: Final = "ldapsearch ldapadd ldapmodify ldapdelete ldappasswd ldapwhoami ldapcompare"
_SNMP: Final = "snmpget snmpset snmpwalk snmpbulkwalk snmptrap"
_ORACLE: Final = "sqlplus sqlldr expdp impdp rman"

_PASSWORD_OPTIONS: Final = (
    (f"{_DATABASES} {_CONTAINERS} {_ARCHIVES} sshpass twine restic rdesktop ncftp", "-p"),
    ("xfreerdp wlfreerdp mstsc", "/p:"),
    ("redis-cli valkey-cli keydb-cli", "-a"),
    (f"{_LDAP} psexec", "-w"),
    ("zip unzip zipcloak sqlcmd bcp isql ipmitool osql freebcp", "-P"),
    ("openssl kaggle", "-k"),
    (_SNMP, "-c -A -X"),
    ("doctl flyctl fly consul", "-t -token"),
    ("gh", "-b --body"),
    ("kubectl oc helm", "--from-literal"),
    ("expect", "-c"),
    ("impala-shell", "-l"),
    ("mosquitto_pub mosquitto_sub", "-P"),
    ("curl", "-E --cert --pass"),
)
"""Programs, and their options with a password: followed by it, or with it in the same argument."""

_SECRET_WORDS: Final = (
    ("", "login logon signin add_user adduser change_password htpasswd chpasswd"),
    (_ORACLE, _ORACLE),
    ("mc mcli", "alias host"),
    ("net", "user use"),
    ("ngc", "set"),
    ("expect", "send"),
)
"""Programs ("" is any), and words after which every argument that is no option is masked."""

_USER_OPTIONS: Final = frozenset(
    ["-u", "-U", "-a", "--user", "--userpwd", "--username", "--proxy-user", "--login", "--userpass"]
)
"""Options with a user and a password, joined by one of `_USER_SEPARATORS`."""

_LOGIN_OPTION: Final = re.compile(r"--?\w[\w.-]*[._-]login")
"""As `--smtp-login`: an option with a user, and the password after it or joined by a separator."""

_USER_SEPARATORS: Final = re.compile("[:,%]")

_CONNECTIVES: Final = frozenset(["=", ":", ":=", "==", "is", "to", "->", "=>", "was", "'s"])
"""What may be between a name and its value, as arguments of their own."""

_ENDS: Final = frozenset(["|", "||", "&&", ";", "&", "|&", "\n"])
"""Where a command ends, and another one begins."""

_SUFFIXES: Final = re.compile(r"(?i)\.(exe|cmd|bat|com)$")


class _Table(NamedTuple):
    options: dict[str, tuple[str, ...]]
    words: dict[str, frozenset[str]]


def _make_table() -> _Table:
    options: dict[str, tuple[str, ...]] = {}
    words: dict[str, frozenset[str]] = {}
    for programs, names in _PASSWORD_OPTIONS:
        for program in programs.split():
            options[program] = (*options.get(program, ()), *names.split())
    for programs, names in _SECRET_WORDS:
        for program in programs.split() or [""]:
            words[program] = words.get(program, frozenset()).union(names.split())
    return _Table(options, words)


_TABLE: Final = _make_table()


class CommandRules:
    """The rules that apply to the arguments of one command, which are given one after the other."""

    def __init__(self, arguments: Iterable[str]) -> None:
        self._options: tuple[str, ...] = ()
        self._words = _TABLE.words[""]
        self._has_stdin = any("stdin" in each or each == "-S" for each in arguments)

    def begin(self, argument: str) -> bool:
        """Note the programs that an argument names; return whether a new command begins."""
        if argument in _ENDS:
            self._options, self._words = (), _TABLE.words[""]
            return True
        if not argument.startswith("-"):
            program = _SUFFIXES.sub("", re.split(r"[/\\]", argument)[-1])
            added = _TABLE.options.get(program, ())
            self._options += tuple(each for each in added if each not in self._options)
            self._words |= _TABLE.words.get(program, frozenset())
        return False

    def find_password_option(self, argument: str) -> str | None:
        """Return the option with a password that an argument is or begins with."""
        for option in self._options:
            if argument == option or (
                argument.startswith(option)
                and (not option.startswith("--") or argument[len(option)] == "=")
            ):
                return option
        return None

    def is_before_secrets(self, argument: str) -> bool:
        """Return whether what follows is masked up to the end of the command, except options."""
        is_printed = self._has_stdin and argument in {"echo", "printf"}
        return is_printed or argument in self._words


def is_connective(argument: str) -> bool:
    """Return whether the value of a name is still to come."""
    return argument in _CONNECTIVES


def is_login_option(argument: str) -> bool:
    """Return whether a user follows this option, and a password that one."""
    return _LOGIN_OPTION.fullmatch(argument) is not None


def split_user(option: str, value: str) -> tuple[str, str] | None:
    """Return the user and the separator of what an option of users has; None without a password."""
    if option not in _USER_OPTIONS and not is_login_option(option):
        return None
    separator = _USER_SEPARATORS.search(value)
    return None if separator is None else (value[: separator.start()], separator[0])
