"""The last release: what upgrades must work from, and what older servers beside new ones are."""

from __future__ import annotations

LAST_MIGRATION = "0008_uploads"
"""The latest migration of the last release."""
