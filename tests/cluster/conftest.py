"""Tests of a Citus cluster: they need `pytest --citus`, for which `make test-citus` is."""

import pytest


@pytest.fixture
def cluster(servers, request):
    """The running cluster."""
    if not request.config.getoption("citus"):
        pytest.skip("needs a Citus cluster: make test-citus CITUS_TOOLS=...")
    return servers.cluster
