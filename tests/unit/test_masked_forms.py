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

KEPT = [
    "t --mode train -p 8080 -a 1 -k 3 -c cfg.yaml -w 4 -P x -t 5 -u 7",
    "python -m torch.distributed.run --nproc-per-node 4 train.py --port 29500",
    "python run_mlm.py --model bert-base data/train.txt data/test.txt",
    "t <loss>1</loss> [lr, 0.1] name=lr,value=0.1 keyboard.layout=us --compass north",
    "t --tokens none false --token --lr 1 -vv --bypass x --encompass y",
    "t --user ada --login ada -u root -a b",
    "t --smtp-login ada --lr 1 --login-node n01 train.py --pskov x",
    "t {name: adam, value: 3} --plugins scalars,images a,b",
]


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
@pytest.mark.parametrize("secret", SECRETS)
def test_password_is_masked_in_any_command(form, secret):
    for given in forms_of(form, secret):
        masked = mask_secrets(given)
        assert secret not in " ".join(masked), given
        assert len(masked) == len(given)


@pytest.mark.parametrize("command", KEPT)
def test_command_without_password_is_kept(command):
    assert mask_secrets(command.split()) == command.split()


@pytest.mark.parametrize("name", ["-p", "--hf", "--comet", "--access", "--license", "--my-hf"])
def test_what_looks_like_password_is_masked_after(name):
    for secret in ("hunter2x", "Tr0ub4dor&3"):
        assert mask_secrets(["train", name, secret, "run12ab"]) == ["train", name, "***", "run12ab"]
    for value in ("correct", "8080", "80:80", "org/model-7b", "params2.json", "runs/exp1"):
        assert mask_secrets(["train", name, value]) == ["train", name, value]


def test_rules_of_a_program_end_with_its_command():
    command = ["docker", "login", "-p", "x", "&&", "train", "-p", "fast"]
    assert mask_secrets(command)[3:] == ["***", "&&", "train", "-p", "fast"]
