"""`tbservice` whose workers import one module slowly (SLOW_MODULE), if a file exists (SLOW_FILE).

The worker writes its process id into the file when it begins to wait.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

WAIT_SECONDS = 40


class SlowFinder:
    """A finder of modules that finds none, and waits before it lets the others find one."""

    def find_spec(self, name, _path=None, _target=None):
        file = Path(os.environ["SLOW_FILE"])
        if name == os.environ["SLOW_MODULE"] and file.exists():
            file.write_text(f"{os.getpid()}\n")
            time.sleep(WAIT_SECONDS)


if __name__ == "__main__":
    from tbservice.cli import main

    sys.exit(main(["serve"]))

if __name__ == "__mp_main__":  # a worker, which imports this file
    sys.meta_path.insert(0, SlowFinder())
