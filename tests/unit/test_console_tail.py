"""The end of a console as it is recorded: lines, limits, control characters, masked secrets."""

from __future__ import annotations

import os
import random

import pytest

from tbupload.recording.console_tail import LINE_BYTES_MAX, TEXT_BYTES_MAX, ConsoleTail
from tbupload.recording.masked_text import mask_lines

RANDOM = "q7Zp2LkX9vTb4RmN8sWc"

SECRET_LINES = [
    "train --password SECRET --lr 1",
    "password: SECRET and more SECRET",
    "password=12345678 SECRET",
    "Authorization: Bearer SECRET",
    "sending Bearer SECRET",
    '{"api_key": "SECRET", "lr": 1}',
    "os.environ['WANDB_API_KEY'] = 'SECRET'",
    '+    client = Client(token="SECRET")',
    "HF_TOKEN=SECRET python train.py",
    "+ docker login -u ada -p SECRET",
    "postgres://ada:SECRET@db/x is away",
    "GET https://host/x?sig=SECRET",
    f"the token is {RANDOM}SECRET",
    f"x ghp_{RANDOM}SECRET y",
]

HARMLESS_LINES = [
    "step 10 loss=0.5 lr=1e-3",
    "tokens: 1.2M, tokens/s=35k, loss: 2.5",
    "Epoch 3:  45%|####      | 45/100 [00:12<00:15,  3.6it/s, loss=0.5]",
    "use_auth: False",
    "diff --git a/train.py b/train.py",
    "index 0fdde39..3bc24c0 100644",
    "@@ -8,3 +8,5 @@ for step in range(10):",
    "see https://example.org/docs/run.html",
    "wrote runs/resnet50/events.out.tfevents.1700000000.host.123.0",
]


@pytest.mark.parametrize("line", SECRET_LINES)
def test_secret_in_a_line_is_masked(line):
    (masked,) = mask_lines([line])
    assert "SECRET" not in masked
    assert "***" in masked


@pytest.mark.parametrize("line", HARMLESS_LINES)
def test_harmless_line_is_kept(line):
    assert list(mask_lines([line])) == [line]


def test_private_key_is_masked_to_its_end():
    lines = ["a", "-----BEGIN RSA PRIVATE KEY-----", "abc", "-----END RSA PRIVATE KEY-----", "b"]
    assert list(mask_lines(lines)) == ["a", "***", "***", "***", "b"]


def tail_of(*chunks):
    tail = ConsoleTail(3)
    for stream, chunk in chunks:
        tail.feed(stream, chunk)
    return tail.read().text


def test_tail_has_the_last_lines_of_both_streams():
    chunks = ((1, b"a\nb"), (2, b"error\n"), (1, b"c\nd\n"), (1, b"unfinished"))
    assert tail_of(*chunks) == "bc\nd\nunfinished"
    assert tail_of((1, b"a\n"), (2, b"e\n"), (1, b"b\n")) == "a\ne\nb"


def test_tail_is_the_same_however_it_is_cut():
    written = b"".join(b"%d\r\nx\r\x1b[1mbar %d\n" % (number, number) for number in range(50))
    for seed in range(100):
        rng = random.Random(seed)  # noqa: S311 - cuts a text
        cuts = sorted(rng.sample(range(len(written)), rng.randint(0, 20)))
        ends = [*cuts, len(written)]
        pieces = [written[a:b] for a, b in zip([0, *cuts], ends)]  # noqa: B905 - Python 3.9
        assert tail_of(*((1, piece) for piece in pieces)) == "bar 48\n49\nbar 49", seed


def test_tail_of_progress_bar_is_its_last_state():
    assert tail_of((1, b"\r 10%"), (1, b"\r 20%\r"), (1, b"\r 100%"), (1, b"\n")) == " 100%"


def test_tail_is_bounded_and_printable():
    tail = ConsoleTail(1_000)
    for _ in range(200):
        tail.feed(1, os.urandom(1 << 16))
        tail.feed(2, b"x" * (1 << 16))
    text = tail.read().text
    assert len(text.encode()) <= TEXT_BYTES_MAX
    assert all(line.isprintable() for line in text.split("\n"))
    assert text.split("\n")[0].startswith("... ")
    assert text.split("\n")[-1] == "x" * LINE_BYTES_MAX
