"""Rendering the Helm chart with Helm, as `make test-helm` runs it: `make test` does not install it."""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("TBHUB_HELM") else ["test_*.py"]
