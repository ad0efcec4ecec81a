"""A hook of xdist: with `--dist loadfile`, one process gets the modules of some folders together.

What these modules share within a process takes longer than most of their tests: the service with a
proxy at every connection and what is stored without faults (8 s of processor time), or the trees of
all modules of the repository (6 s).
"""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadFileScheduling

TOGETHER = ("tests/faults", "tests/tidy")


class FolderScheduling(LoadFileScheduling):
    """Distributes modules, and each folder of TOGETHER as one."""

    def _split_scope(self, nodeid):
        path = super()._split_scope(nodeid)
        folder = path.rpartition("/")[0]
        return folder if folder in TOGETHER else path


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return FolderScheduling(config, log) if config.getvalue("dist") == "loadfile" else None
