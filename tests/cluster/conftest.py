"""Tests of a Citus cluster: `make test-citus` runs them."""

import pytest


@pytest.fixture
def cluster(servers):
    """The running cluster."""
    return servers.cluster
