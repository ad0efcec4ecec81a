"""Jobs of handler processes whose libraries take long to import."""

from __future__ import annotations

import time

JOBS = {}

time.sleep(30)
