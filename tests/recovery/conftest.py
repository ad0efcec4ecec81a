"""Recovery with servers of its own, as `make test-recovery` runs it: it takes a minute."""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("TBHUB_RECOVERY") else ["test_*.py"]
