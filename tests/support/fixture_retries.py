"""A plugin of pytest: a fixture of the session that failed is tried again by the next test.

pytest would raise the first error in all tests that need it, thousands if a server did not start.
"""

from __future__ import annotations

from collections import Counter

import pytest

FAILURES_MAX = 3
"""Failures of a fixture after which its error is raised at once: probably, all would fail."""

_FAILURES = pytest.StashKey[Counter]()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    try:
        return (yield)
    except Exception:
        failures = request.config.stash.setdefault(_FAILURES, Counter())
        failures[fixturedef] += 1
        if fixturedef.scope == "session" and failures[fixturedef] < FAILURES_MAX:
            fixturedef.finish(request)  # which forgets the error
        raise
