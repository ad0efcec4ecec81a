"""Progress on stderr: plain lines now and then, live lines on a terminal, each problem once."""

import io
import os
from pathlib import Path

import pytest

from tbupload.console import progress
from tbupload.console.progress import (
    LINE_SECONDS,
    ConsoleProgress,
    LiveProgress,
    ProgressState,
    Rates,
    ThroughputMeter,
    bar_text,
    duration_text,
    join_fitting,
    truncate,
)
from tbupload.console.texts import (
    PROBLEMS_SHOWN,
    amounts_text,
    count_text,
    counted,
    size_text,
)
from tbupload.upload.summary import Summary

MIB = 1 << 20
HALF = ProgressState(
    MIB, 2 * MIB, scalars=1234, runs=2, series=6, sent_bytes=MIB, points=1300, skipped={"bad": 3}
)
URL = "http://tbhub.example/experiment/abc/"


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
    monkeypatch.setattr(progress, "time", clock)
    return clock


def test_plain_line_shows_amounts_rates_and_skipped(stream, clock):
    plain = ConsoleProgress(stream=stream)
    clock.now += 1000  # the time before the first point could be sent
    plain.start(URL)
    clock.now += 32
    plain.show(HALF)
    assert stream.getvalue() == (
        "1.0 of 2.0 MiB, 32.0 KiB/s, 1,300 points (41/s), 6 series in 2 runs, 32 s left, skipped so far: bad (3), "
        f"{URL}\n"
    )


def test_plain_lines_come_seldom_and_only_on_change(stream, clock):
    plain = ConsoleProgress(stream=stream)
    plain.start()
    for _ in range(100):
        clock.now += 1
        plain.show(HALF)
    assert stream.getvalue().count("\n") == 1
    for number in range(int(10 * LINE_SECONDS)):
        clock.now += 1
        plain.show(ProgressState(number, 1000, 0, 0, 0))
    assert stream.getvalue().count("\n") == 11


def test_rates_are_of_last_seconds_and_fall_when_nothing_comes(clock):
    measured = ThroughputMeter()
    for second in range(1, 31):
        clock.now += 1
        rates = measured.rates(second * 100, second * 10)
    assert (rates.bytes_per_second, rates.points_per_second) == (100.0, 10.0)
    for _ in range(20):
        clock.now += 1
        rates = measured.rates(3000, 300)
    assert rates == Rates(0.0, 0.0)
    assert rates.seconds_for(1) is None


def test_progress_rate_excludes_earlier_bytes(stream, clock):
    plain = ConsoleProgress(stream=stream)
    plain.start()
    clock.now += 32
    plain.show(ProgressState(1000 * MIB, 1001 * MIB, 1, 1, 1, sent_bytes=MIB, points=1))
    assert "32.0 KiB/s" in stream.getvalue()
    assert "32 s left" in stream.getvalue()


def test_quiet_says_warnings_only_and_verbose_everything():
    for verbosity, expected in ((-1, "w\n"), (0, "w\ns\n"), (1, "w\ns\nd\n")):
        output = io.StringIO()
        plain = ConsoleProgress(verbosity, output)
        plain.warn("w")
        plain.info("s")
        plain.debug("d")
        assert output.getvalue() == expected


def test_warning_is_yellow_on_a_terminal_with_colors(monkeypatch):
    for no_color, expected in (("", "\x1b[33mw\x1b[0m\ns\n"), ("1", "w\ns\n")):
        monkeypatch.setenv("NO_COLOR", no_color)
        monkeypatch.setenv("TERM", "xterm")
        terminal = io.StringIO()
        terminal.isatty = lambda: True
        plain = ConsoleProgress(stream=terminal)
        plain.warn("w")
        plain.info("s")
        assert terminal.getvalue() == expected


def test_problem_is_said_once_and_very_many_are_only_counted(stream):
    plain = ConsoleProgress(stream=stream)
    sentences = [f"path{number}: no" for number in range(3 * PROBLEMS_SHOWN)]
    for sentence in [*sentences[:3], *sentences, *sentences]:
        plain.report_problem(sentence)
    lines = stream.getvalue().splitlines()
    assert lines[:-1] == sentences[:PROBLEMS_SHOWN]
    assert "only counted" in lines[-1]


def test_reader_who_has_gone_and_full_disk_are_no_reason_to_fail():
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as nobody:
        for shown in (ConsoleProgress(stream=nobody), LiveProgress(stream=nobody)):
            shown.warn("w")
        os.dup2(os.open(os.devnull, os.O_WRONLY), nobody.fileno())  # what is left in the buffer
    if Path("/dev/full").exists():
        full = Path("/dev/full").open("w")  # noqa: SIM115 - its closing fails, as its writing does
        ConsoleProgress(stream=full).warn("w")
        with pytest.raises(OSError, match="No space"):
            full.close()


def test_live_lines_move_and_go_away(stream, clock):
    bar = LiveProgress(stream=stream)
    bar.start(URL)
    bar.show(ProgressState(0, 2 * MIB, 0, 0, 0))
    for part in (
        HALF,
        ProgressState(2 * MIB, 2 * MIB, 5678, 2, 6, sent_bytes=2 * MIB, points=5678),
    ):
        clock.now += 1
        bar.show(part)
    bar.info("a sentence")
    shown = stream.getvalue()
    for words in (
        "1.0 of 2.0 MiB",
        "1,300 points",
        "2.0 of 2.0 MiB",
        "5,678 points",
        f"6 series in 2 runs  {URL}",
    ):
        assert words in shown
    assert "skipped so far: bad (3)" in shown
    bar.close()
    bar.close()
    assert stream.getvalue().endswith("\r")


def test_progress_begins_at_nothing_done(stream):
    bar = LiveProgress(stream=stream)
    bar.start()
    bar.show(ProgressState(0, 0, 0, 0, 0))
    bar.close()
    assert "looking for event files" in stream.getvalue()
    assert "  0%|" in stream.getvalue()
    for words in ("100%", "0 of 0"):
        assert words not in stream.getvalue()
    idle = ProgressState(0, 0, 0, 0, 0, is_idle=True)
    assert bar_text(idle, Rates(0.0, 0.0), 80).startswith("no event files yet, ")


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "run", "0 runs"),
        (1, "run", "1 run"),
        (1234, "run", "1,234 runs"),
        (1, "more series", "1 more series"),
        (2, "series", "2 series"),
    ],
)
def test_counts_have_their_nouns_in_right_number(count, noun, text):
    assert counted(count, noun) == text


def test_idle_upload_is_up_to_date_whatever_cannot_be_sent(stream):
    bar = LiveProgress(stream=stream)
    bar.start()
    bar.show(ProgressState(MIB, 2 * MIB, 5, 1, 1, is_idle=True))
    assert "up to date" in stream.getvalue()


def test_quiet_bar_is_no_bar(stream):
    bar = LiveProgress(-1, stream)
    bar.start(URL)
    bar.show(HALF)
    bar.close()
    assert stream.getvalue() == ""


def test_line_is_never_longer_than_terminal_is_wide():
    rates = Rates(32.0 * 1024, 41.0)
    for columns in range(1, 120):
        text = bar_text(HALF, rates, columns)
        assert len(text) <= columns or text == "1.0 of 2.0 MiB"
        assert len(join_fitting(["6 series in 2 runs", URL], columns)) < columns
        assert len(truncate("skipped so far: bad (3)", columns)) < max(columns, 4)


def test_wide_terminal_shows_all_and_narrow_one_amounts():
    rates = Rates(32.0 * 1024, 41.0)
    assert bar_text(HALF, rates, 80) == "1.0 of 2.0 MiB, 32.0 KiB/s, 1,300 points, 41/s, 32 s left"
    assert bar_text(HALF, rates, 30) == "1.0 of 2.0 MiB, 32 s left"
    assert bar_text(HALF, rates, 3) == "1.0 of 2.0 MiB"
    assert join_fitting(["6 series in 2 runs", URL], 40) == URL
    assert join_fitting(["6 series in 2 runs", URL], 30) == "6 series in 2 runs"


def test_summary_names_what_is_missing_or_is_one_line():
    complete = Summary(scalars=1, bytes=2048)
    assert list(complete.lines("sent")) == ["sent 1 scalar (2.0 KiB of event files)"]
    assert list(Summary().lines("sent")) == ["sent no points"]
    many = Summary(scalars=2000, blobs=1, series=2, runs=1, bytes=1)
    assert next(many.lines("sent")) == (
        "sent 2,000 scalars, 1 blob of 2 series in 1 run (1 byte of event files)"
    )
    incomplete = Summary(problems=[f"path{number}: no" for number in range(60)])
    incomplete.skipped["bad"] = 3
    lines = list(incomplete.lines("sent"))
    assert "NOT everything was sent:" in lines
    assert "  skipped 3: bad" in lines
    assert "  path49: no" in lines
    assert "10 more" in lines[-1]
    assert (complete.is_complete, incomplete.is_complete) == (True, False)


def test_summary_omits_reported_problems_but_counts_them(stream):
    plain = ConsoleProgress(-1, stream)
    for number in range(3):
        plain.report_problem(f"path{number}: no")
    lines = list(
        Summary(problems=[f"path{number}: no" for number in range(4)]).lines(
            "sent", plain.has_reported
        )
    )
    assert lines[-2:] == ["  path3: no", "  3 problems were named above"]


def test_sizes_counts_and_times_are_read_by_people():
    assert [size_text(size) for size in (0, 1023, 1024, 5 << 20, 3 << 40)] == [
        "0 bytes",
        "1,023 bytes",
        "1.0 KiB",
        "5.0 MiB",
        "3,072.0 GiB",
    ]
    assert amounts_text(512, 5 << 20) == "0.0 of 5.0 MiB"
    assert amounts_text(9, 5) == "5 of 5 bytes"
    assert [count_text(count) for count in (0, 9999, 12_345, 1_234_567, 5e9)] == [
        "0",
        "9,999",
        "12.3k",
        "1.23M",
        "5.00G",
    ]
    assert [duration_text(seconds) for seconds in (0.4, 61, 3725, 90_000)] == [
        "0 s",
        "1 min 1 s",
        "1 h 2 min",
        "1 d 1 h",
    ]
