"""How long the uploader waits before a retry, and what ends a wait early."""

import math
import threading
import time

import pytest

from support.waiting import wait_until
from tbupload.http.retry import RetryPolicy


def wait(retry, retry_after=None):
    """Wait in another thread; return it and a list that receives the outcome."""
    outcomes = []

    def waiting():
        outcomes.append(retry.wait_before_retry(10, time.monotonic(), retry_after))

    thread = threading.Thread(target=waiting, daemon=True)
    thread.start()
    return thread, outcomes


@pytest.fixture
def _long_delays(monkeypatch):
    monkeypatch.setattr("tbupload.http.retry.FIRST_RETRY_DELAY_SECONDS", 1000.0)
    monkeypatch.setattr("tbupload.http.retry.RETRY_DELAY_SECONDS_MAX", 1000.0)


@pytest.mark.usefixtures("_long_delays")
def test_request_is_retried_at_once_after_server_returns():
    retry = RetryPolicy(math.inf)
    thread, outcomes = wait(retry)

    def has_returned():  # it may begin to wait only now
        retry.report_success()
        return not thread.is_alive()

    wait_until(has_returned)
    assert len(outcomes) == 1
    assert outcomes[0] is not None


def test_request_waits_for_its_own_retry_after():
    retry = RetryPolicy(math.inf)
    thread, outcomes = wait(retry, retry_after=1000.0)
    for _ in range(5):
        retry.report_success()
        thread.join(0.02)
    assert outcomes == []
    retry.stop_token.cancel()
    thread.join(60)
    assert outcomes == [None]


def test_refused_connections_have_timeout_of_their_own():
    retry = RetryPolicy(math.inf, refused_timeout_seconds=0.0)
    assert retry.wait_before_retry(0, time.monotonic(), None, is_refused=True) is None
    assert retry.wait_before_retry(0, time.monotonic(), None) is not None


@pytest.mark.usefixtures("_long_delays")
def test_orderly_end_cuts_wait_short():
    retry = RetryPolicy(math.inf)
    thread, outcomes = wait(retry)
    retry.stop_token.stop()
    thread.join(60)
    assert len(outcomes) == 1


def test_end_within_time_is_over_after_it():
    retry = RetryPolicy(math.inf)
    retry.stop_token.stop()
    assert retry.stop_token.is_stopping
    assert not retry.stop_token.is_deadline_passed
    retry.stop_token.stop(within_seconds=0.0)
    assert retry.stop_token.is_deadline_passed
    assert retry.wait_before_retry(0, time.monotonic(), None) is None


def test_waits_grow_up_to_limit_and_are_never_quite_same(monkeypatch):
    monkeypatch.setattr("tbupload.http.retry.FIRST_RETRY_DELAY_SECONDS", 1e-5)
    monkeypatch.setattr("tbupload.http.retry.RETRY_DELAY_SECONDS_MAX", 1e-3)
    retry = RetryPolicy(math.inf)
    waits = [retry.wait_before_retry(attempt, time.monotonic(), None) for attempt in range(20)]
    assert 0.5e-5 <= waits[0] <= 1e-5
    assert all(0.5e-3 <= seconds <= 1e-3 for seconds in waits[10:])
    assert len(set(waits)) == len(waits)


def test_waits_for_retry_after_are_spread(monkeypatch):
    monkeypatch.setattr("tbupload.http.retry.FIRST_RETRY_DELAY_SECONDS", 1e-5)
    retry = RetryPolicy(math.inf)
    waits = [retry.wait_before_retry(0, time.monotonic(), 0.01) for _ in range(40)]
    assert all(0.01 <= seconds <= 0.02 for seconds in waits)
    assert max(waits) - min(waits) > 0.004
