"""Completion in real shells: words are typed on a terminal, and a tabulator behind them."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import sys
import time
from pathlib import Path

import pytest

from support.programs import find_program
from support.waiting import SECONDS_MAX
from tbupload.cli import main
from tbupload.commands import completion

BIN = str(Path(sys.executable).parent)
STARTS = {
    "bash": ("--norc", "-i"),
    "zsh": ("-f", "-i"),
    "fish": ("--no-config", "--interactive"),
}
SOURCES = {
    "bash": "source <({program} completion bash)",
    "zsh": "autoload -U compinit; compinit -D -u; source <({program} completion zsh)",
    "fish": "{program} completion fish | source",
}


class Terminal:
    """A shell on a terminal of its own, with a home directory of its own."""

    def __init__(self, shell, home):
        program = find_program(shell)
        environment = {
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "HOME": str(home),
            "TERM": "xterm",
            "TBHUB_CONFIG": str(home / "none.toml"),
            "PS1": "> ",
        }
        self._pid, self._master = pty.fork()  # which makes it the controlling terminal
        if not self._pid:
            os.chdir(home)
            os.execve(program, [program, *STARTS[shell]], environment)  # noqa: S606 - the shell itself
        self._seen = ""

    def type(self, text):
        os.write(self._master, text.encode())

    def read_until(self, pattern):
        """Read what the terminal shows up to a pattern, and forget it."""
        deadline = time.monotonic() + SECONDS_MAX
        while not (match := re.search(pattern, self._seen)):
            assert time.monotonic() < deadline, self._seen
            if select.select([self._master], [], [], 1)[0]:
                self._seen += os.read(self._master, 4096).decode(errors="replace")
        self._seen = self._seen[match.end() :]

    def close(self):
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._master)


@pytest.mark.parametrize("shell", STARTS)
def test_completion_in_real_shell(shell, tmp_path):
    (tmp_path / "my-logs").mkdir()
    terminal = Terminal(shell, tmp_path)
    try:
        terminal.type(SOURCES[shell].format(program="tbupload") + "\r")
        terminal.type("echo rea''dy\r")
        terminal.read_until("ready")
        for typed, added in {
            "tbupload list --arch": "ived",
            "tbupload list --status=kil": "led",
            "tbupload --logdir my": "-logs",
        }.items():
            terminal.type(f"{typed}\t")
            terminal.read_until(added)
            terminal.type("\x15")  # Ctrl-U: an empty line
    finally:
        terminal.close()


def test_completion_offers_experiments(live_service, tmp_path, monkeypatch, capsys):
    owner = live_service.new_owner()
    monkeypatch.setenv("TBHUB_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.setenv("TBHUB_SERVER", live_service.url)
    monkeypatch.setenv("TBHUB_TOKEN", owner)
    monkeypatch.setattr(completion, "WAIT_SECONDS_MAX", SECONDS_MAX)
    for name in ("baseline", "two words"):
        assert main(["create", "--name", name]) == 0
    ids = [line.rpartition("/experiment/")[2][:22] for line in capsys.readouterr().out.split()]

    def ask(*words):
        assert main(["completion", "fish", "--", *words]) == 0
        return capsys.readouterr().out.splitlines()

    offered = {f"{ids[0]}\tbaseline", f"{ids[1]}\ttwo words"}
    assert set(ask("show", "")) == set(ask("verify", "--experiment", "")) == offered
    assert set(ask("open", "")) == {*offered, "baseline"}
    assert ask("open", "bas") == ["baseline"]
    assert ask("show", "--profile", "other", "") == []
    monkeypatch.setenv("TBHUB_TOKEN", "tbh_wrong")
    assert ask("show", "") == []
