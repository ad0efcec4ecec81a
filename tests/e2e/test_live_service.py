"""What `support.servers.live_service` says about a service that does not stop."""

from pathlib import Path

import pytest

from support import endless_service
from support.servers import live_service
from tbservice.local.embedded.ports import choose_ports

pytestmark = pytest.mark.own_database


@pytest.mark.parametrize("is_block_good", [True, False])
def test_service_that_does_not_stop_hides_no_error(settings, tmp_path, monkeypatch, is_block_good):
    monkeypatch.setattr("support.servers.STOP_SECONDS_MAX", 1)
    program, port = [Path(endless_service.__file__)], choose_ports(["service"], {})["service"]
    message = "did not stop" if is_block_good else "the block's"
    with (
        pytest.raises(AssertionError, match=message) as raised,
        live_service(settings, port, tmp_path / "log", program=program),
    ):
        assert is_block_good, "the block's"
    told = [str(raised.value), *getattr(raised.value, "__notes__", [])]
    assert any("within 1 s" in each and endless_service.LAST_WORDS in each for each in told)
