"""Forms in which commands have passwords that no option's name tells: each is masked, as a command
of its own and within `sh -c`, JSON, and other commands.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tbupload.recording.masking import mask_secrets

FORMS = [
    line
    for line in Path(__file__).with_name("masked_forms.txt").read_text("utf-8").splitlines()
    if line and not line.startswith("#")
]

SECRETS = ["hunter2x", "correct", "Tr0ub4dor&3", "p:w/d@x"]


def forms_of(form: str, secret: str) -> list[list[str]]:
    """Return a form as arguments of a command, and in other commands."""
    words = [re.sub(r"SECRET\d?", lambda _: secret, word) for word in shlex.split(form)]
    return [
        words,
        ["sudo", "env", "A=1", *words],
        ["sh", "-c", shlex.join(words)],
        ["sh", "-c", f"cd x && {shlex.join(words)} | tee log"],
        ["run", json.dumps(words)],
        ["run", f"--cmd={shlex.join(words)}"],
    ]


@pytest.mark.parametrize("form", FORMS)
def test_password_is_masked_in_any_command(form):
    for secret in SECRETS:
        for given in forms_of(form, secret):
            masked = mask_secrets(given)
            assert secret not in " ".join(masked), given
            assert len(masked) == len(given)


@pytest.mark.parametrize("name", ["-p", "--hf", "--comet", "--access", "--license", "--my-hf"])
def test_short_or_dubious_option_keeps_numbers_behind_a_script(name):
    for secret in ("hunter2x", "Tr0ub4dor&3", "correct"):
        assert mask_secrets(["train.py", name, secret]) == ["train.py", name, "***"]
    assert mask_secrets(["train.py", name, "8080"]) == ["train.py", name, "8080"]


def test_number_is_masked_where_it_may_be_a_password():
    for command in ("sshpass -p 1234 x", "train.py sshpass -p 1234", "htpasswd -b f ada 1234"):
        assert "1234" not in " ".join(mask_secrets(command.split())), command
