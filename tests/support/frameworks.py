"""Run training scripts with real frameworks, each in the environment that has it."""

from __future__ import annotations

import os
import re
import subprocess
from base64 import b64decode
from dataclasses import dataclass
from pathlib import Path

from support.source_code import ROOT
from support.uploading import experiment_id_of
from tbwire.hparams_pb2 import HParamsPluginData

FRAMEWORKS = os.environ.get("TBHUB_FRAMEWORKS", "")
"""How the names of the virtual environments begin, to which `-torch` and `-tensorflow` is added."""

TRAINING_SECONDS_MAX = 300


def python_of(environment):
    """Return the interpreter of `torch` or `tensorflow`."""
    return Path(f"{FRAMEWORKS}-{environment}", "bin", "python")


@dataclass(frozen=True)
class Ended:
    code: int
    text: str

    @property
    def urls(self):
        return list(dict.fromkeys(re.findall(r"http\S+/experiment/\w+/", self.text)))


class Training:
    """Runs scripts of the documentation, and other ones, in a directory of their own."""

    def __init__(self, uploader, directory):
        self.uploader, self.directory = uploader, directory

    def run(self, environment, script, *arguments, **variables):
        (self.directory / "train.py").write_text(script)
        ended = subprocess.run(
            [python_of(environment), *arguments, "train.py"],
            cwd=self.directory,
            env=self.environment() | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TRAINING_SECONDS_MAX,
            check=False,
        )
        return Ended(ended.returncode, ended.stdout)

    def environment(self):
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
        return self.uploader.environment() | quiet | {"PYTHONPATH": str(ROOT / "uploader")}

    def is_stored(self, logdir, url):
        """Return whether `tbupload verify` finds every point, and nothing else."""
        options = ("--logdir", self.directory / logdir, "--experiment", url)
        return self.uploader.run("verify", "--strict", *options).code == 0


def examples():
    """Return the Python examples of the page by heading, in their order."""
    page = (ROOT / "docs" / "integrations.md").read_text()
    blocks = {}
    for section in re.split(r"^#+ ", page, flags=re.MULTILINE):
        heading = section.partition("\n")[0]
        blocks[heading] = re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    return blocks


def hparams(reader, url):
    """Return the hyperparameters of an experiment, of all its runs together."""
    tags = reader.get(experiment_id_of(url), "tensors", plugin="hparams").values()
    contents = [
        each["_hparams_/session_start_info"]["summary_metadata"]["content"] for each in tags
    ]
    return {
        entry.key: getattr(entry.value, entry.value.WhichOneof("kind"))
        for content in contents
        for entry in HParamsPluginData.FromString(b64decode(content)).session_start_info.hparams
    }
