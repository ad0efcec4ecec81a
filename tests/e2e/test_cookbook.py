"""The cookbook: every block of it runs, and Python and JavaScript get the same answers."""

from __future__ import annotations

import json
import os
import re
import sys

from support.batches import images, scalars, segment, stream
from support.programs import find_node, find_program
from support.servers import live_api
from support.source_code import ROOT
from support.subprocesses import run_to_end

PAGE = (ROOT / "docs" / "cookbook.md").read_text()
TASKS = 20


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def new_environment(live_service):
    """Return the variables of the page, for a new workspace and an experiment with two runs."""
    with live_api(live_service.url, live_service.new_owner()) as api:
        experiment = api.new_experiment(name="cookbook")
        for seed in range(2):
            sent = scalars("loss", range(200), [0.25 + seed / 2] * 200)
            pictures = images("cat", [0], [[b"png"]])
            of = stream(run=f"a/seed{seed}", file_name=f"events.{seed}")
            api.write(experiment, segment(of, 0, 9, sent, pictures))
        workspace = api.request("GET", "/me").json()["workspace"]["workspace_id"]
    return {
        "PATH": os.environ["PATH"],
        "TBHUB_SERVER": live_service.url,
        "TBHUB_TOKEN": api.headers["Authorization"].removeprefix("Bearer "),
        "ID": experiment,
        "WORKSPACE": str(workspace),
    }


def run(command, environment, directory):
    done = run_to_end(command, env=environment, cwd=directory)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_python_and_javascript_print_the_same(live_service, tmp_path):
    assert len(blocks("python")) == len(blocks("js")) == TASKS + 1
    python = "".join(blocks("python")).replace("print(", "show(")
    show = "import json\n\ndef show(*values):\n    print(*map(json.dumps, values))\n"
    program = [sys.executable, "-c", f"{show}{python}"]
    printed = run(program, new_environment(live_service), tmp_path)
    (tmp_path / "all.mjs").write_text("".join(blocks("js")))
    again = run([find_node(), "all.mjs"], new_environment(live_service), tmp_path)
    assert len(printed) == TASKS - 1  # one prints nothing
    assert list(map(parse, printed)) == list(map(parse, again))


def parse(line):
    """Return the JSON values of a line."""
    values, decoder, place = [], json.JSONDecoder(), 0
    while place < len(line):
        value, place = decoder.raw_decode(line, place)
        values.append(value)
        place += 1
    return values


def test_commands_of_cookbook_succeed(live_service, tmp_path):
    curl = find_program("curl")
    first, *commands = blocks("sh")
    assert len(commands) == TASKS
    assert first.count("export") == 4
    script = "".join(
        command.replace("curl ", f"{curl} --fail-with-body --silent ") for command in commands
    )
    printed = run(["bash", "-e", "-c", script], new_environment(live_service), tmp_path)
    assert any("sweep" in line for line in printed)
    assert (tmp_path / "scalars.csv").read_text().count("\n") == 401
    assert (tmp_path / "sessions.csv").exists()
