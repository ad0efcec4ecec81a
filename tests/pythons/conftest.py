"""Other Pythons are tried if there are any: `make test-pythons` names them."""

from __future__ import annotations

import os

collect_ignore = [] if os.environ.get("TBHUB_PYTHONS") else ["test_other_pythons.py"]
