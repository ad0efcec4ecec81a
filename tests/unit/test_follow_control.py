"""Ends of an upload that follows: the control that others call, and the end of a process."""

import os
import signal
import subprocess
import sys
import time

import pytest

from support.waiting import SECONDS_MAX, wait_until
from tbupload.commands.uploading import process_watch
from tbupload.commands.uploading.process_watch import WatchedProcess
from tbupload.http.cancellation import StopToken
from tbupload.upload import follow_control
from tbupload.upload.follow_control import FollowControl
from tbupload.upload.summary import Summary


@pytest.fixture
def token():
    return StopToken()


@pytest.fixture
def control(token):
    return FollowControl(token, lambda *_: None)


@pytest.fixture
def sleeper():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def test_control_ends_nothing_by_itself(control, token):
    control.stop_if_due()
    assert not control.has_been_quiet()
    assert not control.has_been_quiet(-1e9)
    assert not token.is_stopping


def test_control_keeps_looks_in_order_until_they_are_answered(token):
    answered = []
    control = FollowControl(token, lambda name, _: answered.append(name))
    control.request_look("1")
    control.request_look("2")
    assert (control.next_look, control.next_look) == ("1", "1")
    for name in ("1", "2"):
        assert control.next_look == name
        control.answer_look(name, Summary())
    assert (control.next_look, answered) == (None, ["1", "2"])


def test_quiet_counts_from_request_and_from_last_change(control):
    began = time.monotonic()
    control.end_when_quiet(SECONDS_MAX)
    assert not control.has_been_quiet(began - 100)
    control._quiet_since -= SECONDS_MAX
    assert control.has_been_quiet(began - SECONDS_MAX)
    assert not control.has_been_quiet(time.monotonic())


def test_shortest_quiet_time_counts(control):
    control.end_when_quiet(0)
    control.end_when_quiet(300)
    assert control.has_been_quiet()


def test_hurry_leaves_writer_its_time_and_then_stops(control, token, monkeypatch):
    control.hurry()
    control.stop_if_due()
    assert not control.has_been_quiet()
    assert not token.is_stopping
    monkeypatch.setattr(follow_control, "STOP_GRACE_SECONDS", follow_control.SENDING_SECONDS_MIN)
    control.hurry()
    began = time.monotonic()
    control.stop_if_due()
    assert token.is_stopping
    assert 0 <= token.deadline - follow_control.SENDING_SECONDS_MIN - began < SECONDS_MAX


@pytest.mark.parametrize("order", [("hurry", "end"), ("end", "hurry")])
def test_hurry_waits_less_for_quiet_files_of_ended_writer(control, monkeypatch, order):
    monkeypatch.setattr(follow_control, "HURRIED_QUIET_SECONDS", 0.0)
    calls = {"hurry": control.hurry, "end": lambda: control.end_with_process(300)}
    for name in order:
        assert not control.has_been_quiet()
        calls[name]()
    assert control.has_been_quiet()


def test_server_is_not_tried_for_ever_after_end_of_process(control, token, monkeypatch):
    control.end_with_process(300)
    control.stop_if_due()
    assert not token.is_stopping
    monkeypatch.setattr(follow_control, "RETRY_SECONDS_MAX", 0.0)
    control.end_with_process(300)
    control.stop_if_due()
    assert token.is_stopping


def test_wake_ends_sleep_and_stops_nothing(token):
    control = FollowControl(token, lambda *_: None)
    deadline = time.monotonic() + SECONDS_MAX

    def wake(*_):
        assert time.monotonic() < deadline, "it slept on"
        control.request_look("1")

    before = signal.signal(signal.SIGALRM, wake)
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)  # again: the first may come before the sleep
    try:
        token.sleep(2 * SECONDS_MAX)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not token.is_stopping


@pytest.mark.parametrize("has_descriptor", [True, False])
def test_end_of_process_is_noticed_and_stop_is_not(sleeper, monkeypatch, has_descriptor):
    if not has_descriptor:
        monkeypatch.delattr(os, "pidfd_open")
        monkeypatch.setattr(process_watch, "POLL_SECONDS", 0.01)
    watched = WatchedProcess(sleeper.pid, is_parent=False)
    sleeper.send_signal(signal.SIGSTOP)
    assert not watched.has_ended_within(0.05)
    sleeper.kill()
    sleeper.wait()
    assert watched.has_ended_within(10)
    assert WatchedProcess(sleeper.pid, is_parent=False).has_ended_within(0)


def test_zombie_has_ended(sleeper):
    watched = WatchedProcess(sleeper.pid, is_parent=False)
    sleeper.kill()
    assert watched.has_ended_within(10)


@pytest.mark.parametrize("has_descriptor", [True, False])
def test_parent_that_is_another_process_has_ended(monkeypatch, has_descriptor):
    if not has_descriptor:
        monkeypatch.delattr(os, "pidfd_open")
    assert WatchedProcess(os.getpid(), is_parent=True).has_ended_within(0)
    assert not WatchedProcess(os.getppid(), is_parent=True).has_ended_within(0)


def test_fallback_sees_end_of_parent(tmp_path):
    source = f"""
import os, sys
del os.pidfd_open
from tbupload.commands.uploading import process_watch
process_watch.POLL_SECONDS = 0.01
watched = process_watch.WatchedProcess(os.getppid(), is_parent=True)
assert not watched.has_ended_within(0.05)
open({str(tmp_path / "watching")!r}, "w").close()
while not watched.has_ended_within(1):
    pass
open({str(tmp_path / "noticed")!r}, "w").close()
"""
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {source!r}])"
    process = subprocess.Popen([sys.executable, "-c", parent])
    wait_until((tmp_path / "watching").exists)
    process.kill()
    process.wait()
    wait_until((tmp_path / "noticed").exists)
