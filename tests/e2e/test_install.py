"""The installation that `make` runs: how far it is, and one that broke off in the middle."""

import base64
import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from support.subprocesses import run_to_end

ROOT = Path(__file__).parent.parent.parent
SECONDS_MAX = 300


def write_wheel(directory, name):
    """Write a wheel of two modules; return its line in a lock.

    Its METADATA comes first, so that pip takes a package for installed of which it wrote half.
    """
    info = f"{name}-1.0.dist-info"
    files = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{name}/__init__.py": "",
        f"{name}/last.py": "IS_WHOLE = True\n",
    }
    rows = "".join(f"{path},{digest_of(text)},{len(text)}\n" for path, text in files.items())
    wheel = directory / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": f"{rows}{info}/RECORD,,\n"}.items():
            archive.writestr(path, text)
    return f"{name}==1.0 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"


def digest_of(text):
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


@pytest.fixture
def install(tmp_path):
    """A function that installs these packages, from wheels beside the lock; it returns the process."""

    def install(*names):
        lock = tmp_path / "a.lock"
        lock.write_text("".join(write_wheel(tmp_path, name) for name in names))
        kept = {name: text for name, text in os.environ.items() if not name.startswith("PIP_")}
        offline = {
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(tmp_path),
        }
        return run_to_end(
            [sys.executable, ROOT / "deploy/install.py", tmp_path / "venv", lock],
            env=kept | offline,
        )

    return install


def test_interrupted_installation_starts_over(install, tmp_path):
    done = install("first")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "installed 1 packages in" in done.stdout

    assert "nothing to install in" in install("first").stdout

    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (packages / "second/last.py").mkdir(parents=True)  # pip fails in the middle of this package
    done = install("first", "second")
    assert done.returncode != 0
    assert "pip failed:" in done.stdout
    assert "last.py" in done.stdout
    assert (packages / "second-1.0.dist-info/METADATA").exists()

    done = install("first", "second")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "did not end: starting over" in done.stdout
    assert "installed 2 packages in" in done.stdout
    assert len(done.stdout.splitlines()) == 2  # of progress, nothing where it takes no time
    check = "import first.last, second.last; assert second.last.IS_WHOLE"
    subprocess.run([tmp_path / "venv/bin/python", "-c", check], check=True)
