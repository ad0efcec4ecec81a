"""What a person sees on stderr: plain lines with amounts and rate, a bar on a terminal, little when asked for quiet."""

import io

import pytest

from tbupload.sending import progress
from tbupload.sending.progress import Bar, Progress, State
from tbupload.sending.summary import Summary, size_text

HALF = State(done_bytes=1 << 20, total_bytes=2 << 20, scalars=1234, runs=2, series=6)


@pytest.fixture
def stream():
    return io.StringIO()


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 1000.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def test_a_plain_line_tells_amounts_and_rate(stream, clock):
    plain = Progress(stream=stream)
    clock.now += 16
    plain.show(HALF)
    assert stream.getvalue() == "1.0 MiB of 2.0 MiB, 64.0 KiB/s, 1,234 scalars, 6 series, 2 runs\n"


def test_plain_lines_come_seldom_and_only_when_something_has_changed(stream, clock):
    plain = Progress(stream=stream)
    for _ in range(100):
        clock.now += 1
        plain.show(HALF)
    assert stream.getvalue().count("\n") == 1


def test_quiet_says_warnings_only_and_verbose_everything():
    for verbosity, expected in ((-1, "w\n"), (0, "w\ns\n"), (1, "w\ns\nd\n")):
        output = io.StringIO()
        plain = Progress(verbosity, output)
        plain.warn("w")
        plain.say("s")
        plain.detail("d")
        assert output.getvalue() == expected


def test_a_bar_moves_and_goes_away(stream):
    bar = Bar(stream=stream)
    bar.show(HALF)
    bar.show(State(2 << 20, 2 << 20, 5678, 2, 6))
    bar.say("a sentence")
    assert "5,678 scalars" in stream.getvalue()
    bar.close()
    bar.close()
    assert stream.getvalue().endswith("\r")


def test_a_quiet_bar_is_no_bar(stream):
    bar = Bar(-1, stream)
    bar.show(HALF)
    bar.close()
    assert stream.getvalue() == ""


def test_a_complete_summary_is_one_line_and_an_incomplete_one_names_what_is_missing():
    complete = Summary(scalars=1, bytes=2048)
    assert list(complete.lines("sent")) == [
        "sent 1 scalars, 0 tensors, 0 blobs of 0 series in 0 runs (2.0 KiB of event files)"
    ]
    incomplete = Summary(problems=[f"path{number}: no" for number in range(60)])
    incomplete.skipped["bad"] = 3
    lines = list(incomplete.lines("sent"))
    assert "  skipped 3: bad" in lines
    assert "  path49: no" in lines
    assert "10 more" in lines[-1]
    assert (complete.is_complete, incomplete.is_complete) == (True, False)


def test_sizes_are_read_by_people():
    assert [size_text(size) for size in (0, 1023, 1024, 5 << 20, 3 << 40)] == [
        "0 bytes",
        "1,023 bytes",
        "1.0 KiB",
        "5.0 MiB",
        "3,072.0 GiB",
    ]
