"""Answers that several clients get: kept for a moment, and within a limit of bytes."""

from __future__ import annotations

from fastapi import Response
from fastapi.responses import StreamingResponse

from support.clock import Clock
from tbservice.api.http import shared_answers
from tbservice.api.http.shared_answers import ANSWER_SECONDS_MAX, SharedAnswers


def test_kept_answer_has_body_and_headers():
    answers = SharedAnswers(Clock())
    sent = Response(b"{}", headers={"Content-Encoding": "gzip"}, media_type="application/json")
    answers.put("key", sent)
    kept = answers.find("key")
    assert (kept.body, dict(kept.headers)) == (b"{}", dict(sent.headers))
    assert answers.find("other key") is None


def test_kept_answer_is_forgotten_after_seconds():
    clock = Clock()
    answers = SharedAnswers(clock)
    answers.put("key", Response(b"one"))
    clock.now = ANSWER_SECONDS_MAX / 2
    answers.put("key", Response(b"two"))  # does not prolong it
    assert answers.find("key").body == b"one"
    clock.now = ANSWER_SECONDS_MAX
    assert answers.find("key") is None


def test_kept_answers_have_limits_of_bytes(monkeypatch):
    monkeypatch.setattr(shared_answers, "ANSWERS_BYTES_MAX", 100)
    monkeypatch.setattr(shared_answers, "ANSWER_BYTES_MAX", 50)
    answers = SharedAnswers(Clock())
    answers.put("large", Response(bytes(51)))
    for key in ("one", "two", "three"):
        answers.put(key, Response(bytes(50)))
    kept = [key for key in ("large", "one", "two", "three") if answers.find(key)]
    assert kept == ["two", "three"]


def test_errors_and_streams_are_not_kept():
    answers = SharedAnswers(Clock())
    answers.put("error", Response(b"{}", 503))
    answers.put("stream", StreamingResponse(iter([b"{}"])))
    assert answers.find("error") is answers.find("stream") is None
