"""TensorBoard has one version everywhere; when it is raised, this names our files that depend on
what changed.
"""

from __future__ import annotations

import json
import re
from importlib.metadata import version

from support.source_code import ROOT
from support.tensorboard_files import NAMES_USED, NOTED, digests, leanings, read

PINS = ("pyproject.toml", "requirements.lock", "requirements-katib.lock", "requirements-test.lock")
WORDS = re.compile(
    r"(?:tensorboard==|TensorBoard(?:'s)? |projector_config\.proto |plugin_data\.proto |compat/proto )(2\.\d+)"
)
SPEAK_OF_IT = (
    "service/**/*.py",
    "uploader/**/*.py",
    "uploader/**/*.proto",
    "tests/data/**/*.py",
    "tests/data/*.md",
)

RENEW = "PYTHONPATH=tests python -m support.tensorboard_files"
RAISED = """TensorBoard {version} is not the one that these files of ours were compared with.
Compare each with what it leans on:
{places}
Then look at the pictures that the browser tests leave, and note what you have seen: {renew}"""


def test_one_version_is_pinned_installed_and_spoken_of():
    installed = version("tensorboard")
    pinned = {
        name: re.findall(r"\btensorboard==([\w.]+)", (ROOT / name).read_text()) for name in PINS
    }
    assert {name: set(versions) for name, versions in pinned.items()} == {
        name: {installed} for name in PINS
    }
    release = installed.rpartition(".")[0]
    others = [
        f"{path.relative_to(ROOT)}:{number} speaks of TensorBoard {spoken}"
        for pattern in SPEAK_OF_IT
        for path in sorted(ROOT.glob(pattern))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for spoken in WORDS.findall(line)
        if spoken != release
    ]
    assert not others, (
        f"these are of another version than {installed}: look whether they still hold"
    )


def test_tensorboard_dependencies_match_installed_version():
    leaning = leanings()
    noted = json.loads(NOTED.read_text())
    current = digests({theirs for of in leaning.values() for theirs in of})
    assert noted.keys() == current.keys(), (
        f"there are other files to lean on; compare ours with them, and then: {RENEW}"
    )
    changed = [
        f"  {ours}: {theirs} {'is gone' if current[theirs] == 'gone' else 'is another'} ({why})"
        for ours, of in sorted(leaning.items())
        for theirs, why in of.items()
        if current[theirs] != noted.get(theirs) or current[theirs] == "gone"
    ]
    assert not changed, RAISED.format(
        version=version("tensorboard"), places="\n".join(changed), renew=RENEW
    )
    assert all((ROOT / ours).is_file() for ours in leaning)


def test_names_that_our_files_are_lost_without_are_there():
    lost = [
        f"{ours}: there is no {name!r} in {theirs} any more"
        for ours, of in NAMES_USED.items()
        for theirs, names in of.items()
        for name in names
        if name.encode() not in (read(theirs) or b"")
    ]
    assert not lost
