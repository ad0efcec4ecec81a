"""Generated clients, as `make test-clients` runs them: `make test` does not install generators."""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("TBHUB_CLIENTS") else ["test_*.py"]
