"""The page about a search over hyperparameters: its commands and programs run, one after the other,
and print what the page shows.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from support.source_code import ROOT
from support.subprocesses import run_to_end

PAGE = (ROOT / "docs" / "sweep.md").read_text()
BLOCKS = re.findall(r"^```(python|sh)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_blocks_of_page_lead_to_its_tables(live_service, tmp_path):
    variables = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "TBHUB_SERVER": live_service.url,
        "TBHUB_TOKEN": live_service.new_owner(),
    }
    printed = []
    for language, block in BLOCKS:
        few = block.replace("range(10)", "range(3)")  # the same table of 90 runs
        command = [sys.executable, "-c", few] if language == "python" else ["sh", "-c", few]
        ended = run_to_end(command, env=variables, cwd=tmp_path)
        assert ended.returncode == 0, (block, ended.stderr)
        printed.append(ended.stdout)
    _, _, best, groups, latex, frames = printed
    assert best.splitlines()[1].split()[1].startswith("adam-0.01-")
    heading, *_ = re.search(r"```text\n(.*?)```", PAGE, re.DOTALL)[1].splitlines()
    assert groups.splitlines()[0].split() == heading.split()
    assert re.match(
        r"0\.01 +adam +0\S* +3 +0\.9\S* ± 0\.0\S+ \(3\) +0\.1\S+ ±", groups.splitlines()[1]
    )
    assert re.search(r"^adam & 30 & 0\.9\d* \$\\pm\$ 0\.0\d \(30\) & ", latex, re.MULTILINE)
    assert "accuracy.max.mean" in frames
    assert "q0.9" in frames
