"""Completion of `tbupload` and `tbservice` in shells: a script that asks the program itself.

So what is offered is never older than the program, unlike a script with all options in it. The
program answers `PROGRAM completion SHELL -- WORD...` with a line for each word that the last one
may become; where it prints none, the shell completes paths.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

_SCRIPTS: Final = {
    "bash": """\
_PROGRAM() {
    local IFS=$'\\n'
    COMPREPLY=($("$1" completion bash -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _PROGRAM PROGRAM
""",
    "zsh": """\
#compdef PROGRAM
_PROGRAM() {
    local -a offered
    offered=("${(@f)$("${words[1]}" completion zsh -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "$offered" ]]; then _describe -V word offered; else _files; fi
}
if [[ "${funcstack[1]}" = _PROGRAM ]]; then _PROGRAM; else compdef _PROGRAM PROGRAM; fi
""",
    "fish": """\
function __PROGRAM_complete
    set -l before (commandline -opc)
    set -l word (commandline -ct)
    set -l offered ($before[1] completion fish -- $before[2..-1] "$word" 2>/dev/null)
    if set -q offered[1]
        printf '%s\\n' $offered
    else
        __fish_complete_path "$word"
    end
end
complete -c PROGRAM -f -a '(__PROGRAM_complete)'
""",
}

SHELLS: Final = tuple(_SCRIPTS)

EPILOG: Final = """\
to use it in this shell, or always by the same line in the shell's start file:
  bash (~/.bashrc)    source <(PROGRAM completion bash)
  zsh (~/.zshrc)      source <(PROGRAM completion zsh)       behind `compinit`
  fish (config.fish)  PROGRAM completion fish | source
"""
"""End of the help; PROGRAM is replaced by the program's name."""


class Offer(NamedTuple):
    """A word that may be completed to, and its meaning."""

    word: str
    text: str = ""


Values = Callable[[argparse.Action, str], Iterable[Offer]]
"""Returns what the value of an argument may be, that begins with a word."""


def write_script(program: str, shell: str) -> str:
    """Return the script that completes a program's words in a shell."""
    return _SCRIPTS[shell].replace("PROGRAM", program)


def format_offers(shell: str, offers: Iterable[Offer]) -> list[str]:
    """Return a line for each offer, as the scripts read them; bash shows no texts."""
    if shell == "zsh":  # _describe: a backslash before a colon of the word
        return [f"{word.replace(':', chr(92) + ':')}:{text}" for word, text in offers]
    return [f"{word}\t{text}" if shell == "fish" and text else word for word, text in offers]


def complete(
    parser: argparse.ArgumentParser, words: Sequence[str], find_values: Values | None = None
) -> list[Offer]:
    """Return what the last of the words may become: commands, options, values of choices.

    Args:
        parser: The parser of all words behind the program's name.
        words: The words up to the one at the cursor. Bash has a word of `=` alone between an option
            and its value.
        find_values: Called for a value without choices.
    """
    *before, word = words or [""]
    if before and word == "=":
        word = ""
    place = _Place(parser)
    for each in before:
        if each != "=":
            place.pass_word(each)

    name, equals, value = word.partition("=")
    if equals and name in place.options:
        offers = _offer_values(place.options[name], value, find_values)
        return [Offer(f"{name}={each.word}", each.text) for each in offers]
    if place.awaited is not None:
        return _offer_values(place.awaited, word, find_values)
    if word.startswith("-"):
        return [
            Offer(name, _first_clause(action.help))
            for name, action in place.options.items()
            if name.startswith(word) and action.help != argparse.SUPPRESS
        ]
    return _offer_values(place.positionals[0], word, find_values) if place.positionals else []


class _Place:
    """Place behind some words: its options, positional arguments, and an option without value."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.awaited: argparse.Action | None = None
        self._enter(parser)

    def _enter(self, parser: argparse.ArgumentParser) -> None:
        actions = parser._actions  # noqa: SLF001 - argparse has no other way in
        self.options = {name: action for action in actions for name in action.option_strings}
        self.positionals = [action for action in actions if not action.option_strings]

    def pass_word(self, word: str) -> None:
        if self.awaited is not None and not word.startswith("-"):
            self.awaited = None
        elif word in self.options:
            self.awaited = self.options[word] if self.options[word].nargs != 0 else None
        elif not word.startswith("-") and self.positionals:
            action = self.positionals[0]
            if isinstance(action, argparse._SubParsersAction) and word in action.choices:  # noqa: SLF001 - the same
                self._enter(action.choices[word])
            elif action.nargs not in {"+", "*"}:
                del self.positionals[0]


def _offer_values(action: argparse.Action, word: str, find_values: Values | None) -> list[Offer]:
    if action.choices is None:
        return [] if find_values is None else list(find_values(action, word))
    return [each for each in _list_choices(action) if each.word.startswith(word)]


def _list_choices(action: argparse.Action) -> Iterator[Offer]:
    if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - the same
        for each in action._get_subactions():  # noqa: SLF001 - those with a help
            yield Offer(each.dest, _first_clause(each.help))
        return
    for choice in action.choices or ():
        yield Offer(str(choice))


def _first_clause(text: str | None) -> str:
    """Return the beginning of a help text in one line, which fits beside a word."""
    return " ".join((text or "").partition(";")[0].partition(" (default")[0].split())
