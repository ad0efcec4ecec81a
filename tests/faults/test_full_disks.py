"""The disks of PostgreSQL, SeaweedFS, the service and the uploader are full, and then have room again."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from support.subprocesses import run_to_end

pytestmark = [
    pytest.mark.outage,
    pytest.mark.plain("its servers are embedded ones, on small disks in a namespace"),
]

SCENARIOS = Path(__file__).with_name("full_disk_scenarios.py")


def test_full_disks_are_named_and_recovered_from(tmp_path, record_figures):
    namespace = ["unshare", "--user", "--map-root-user", "--mount"]
    pytest_ = [sys.executable, "-m", "pytest", "-q", "--outages", "-p", "no:cacheprovider"]
    done = run_to_end(
        [*namespace, *pytest_, f"--basetemp={tmp_path / 'inner'}", SCENARIOS],
        env=os.environ | {"FULL_DISKS": str(tmp_path)},
        timeout=900,
    )
    record_figures(output=done.stdout[-4000:])
    assert done.returncode == 0, done.stdout
