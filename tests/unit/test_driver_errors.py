"""Errors of the driver that are the database's state, not a fault of the service."""

import psycopg
import pytest
from sqlalchemy import exc

from tbservice.db.errors import translate_driver_errors
from tbservice.errors import Unavailable

LOST = psycopg.errors.InternalError_("failure on connection marked as essential: worker:5432")


@pytest.mark.parametrize("error", [LOST, exc.InternalError("SELECT", {}, LOST)])
def test_lost_connection_between_nodes_is_unavailable(error):
    with pytest.raises(Unavailable, match="nothing was lost, try again"), translate_driver_errors():
        raise error


def test_other_internal_error_is_kept():
    error = psycopg.errors.InternalError_("cache lookup failed")
    with pytest.raises(psycopg.errors.InternalError_) as raised, translate_driver_errors():
        raise error
    assert raised.value is error
