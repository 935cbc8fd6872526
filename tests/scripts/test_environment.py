"""./podium in a clone of its own: real shell and real virtual environments, but no network.

A stand-in for uv makes the environment and writes down what it was asked to install.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

UV = """#!/bin/sh
echo "$1" >>"$UV_LOG"
if [ "$1" = venv ]; then
    for directory; do :; done
    exec "$REAL_PYTHON" -P -m venv --without-pip "$directory"
fi
"""

WITHOUT_ENSUREPIP = """#!/bin/sh
case "$*" in *ensurepip*) exit 1 ;; esac
exec "$REAL_PYTHON" "$@"
"""

PROGRAM = "import colorsys, sys; print('ran', *sys.argv[1:])"


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone whose path has a space, and whose program only says that it ran."""
    clone = tmp_path / "my clone"
    (clone / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "podium", clone)
    shutil.copy(ROOT / "scripts" / "environment.sh", clone / "scripts")
    executable(clone / "src" / "podium" / "__main__.py", PROGRAM)
    (clone / "requirements.lock").write_text("", "utf-8")
    return clone


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A machine with uv and a Python that has no ensurepip, as on Debian."""
    tools = tmp_path / "tools"
    executable(tools / "uv", UV)
    python = executable(tools / "my python", WITHOUT_ENSUREPIP)
    return os.environ | {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "PODIUM_PYTHON": str(python),
        "REAL_PYTHON": sys.executable,
        "UV_LOG": str(tmp_path / "uv.log"),
    }


def start(program: Path, environment: dict[str, str], directory: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [program, "ask", "two words"],
        env=environment,
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_several_first_calls_at_once_set_up_one_after_another(
    clone: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    calls = [start(clone / "podium", environment, tmp_path) for _ in range(3)]
    answers = [call.communicate(timeout=60) for call in calls]
    assert [said for said, _ in answers] == ["ran ask two words\n"] * 3
    assert (tmp_path / "uv.log").read_text("utf-8").split() == ["venv", "pip"]
    assert not os.path.lexists(clone / ".venv.lock")


def test_the_lock_of_a_dead_process_is_taken_over(
    clone: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    with subprocess.Popen(["true"]) as dead:
        dead.wait()
    (clone / ".venv.lock").symlink_to(str(dead.pid))
    said, _ = start(clone / "podium", environment, tmp_path).communicate(timeout=60)
    assert said == "ran ask two words\n"
    assert not os.path.lexists(clone / ".venv.lock")


def test_a_symbolic_link_works_and_ignores_the_working_directory(
    clone: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    foreign = tmp_path / "foreign"
    for module in ("colorsys", "venv", "sysconfig", "podium"):
        executable(foreign / f"{module}.py", "print('foreign code')")
    (foreign / "link").symlink_to(Path("..", "my clone", "podium"))
    said, _ = start(foreign / "link", environment, foreign).communicate(timeout=60)
    assert said == "ran ask two words\n"


def test_a_python_that_cannot_be_used_is_named(
    clone: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    named = environment | {"PODIUM_PYTHON": "/nowhere/my python"}
    call = start(clone / "podium", named, tmp_path)
    _, complaint = call.communicate(timeout=60)
    assert call.returncode == 2
    assert "PODIUM_PYTHON is '/nowhere/my python', which does not run as Python 3.11" in complaint
    assert not os.path.lexists(clone / ".venv.lock")


@pytest.fixture
def tested_clone(clone: Path) -> Path:
    """A clone whose tests only say that they ran."""
    shutil.copy(ROOT / "test", clone)
    for name in ("requirements-dev.lock", "requirements-train.lock"):
        (clone / name).write_text("", "utf-8")
    executable(clone / "src" / "pytest.py", "print('tested')")
    return clone


def run_tests(clone: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [clone / "test", "tests/plan"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_torch_comes_from_pip_once_and_before_the_rest_of_the_training_packages(
    tested_clone: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    log = tmp_path / "uv.log"
    pip = f"import sys; open({str(log)!r}, 'a').write(f'pip-itself {{sys.argv[-1]}}\\n')"
    executable(tested_clone / "src" / "pip" / "__main__.py", pip)
    for _ in range(2):
        ended = run_tests(tested_clone, environment)
        assert (ended.returncode, ended.stdout) == (0, "tested\n")
        assert "SKIPPED" not in ended.stderr
    said = log.read_text("utf-8").splitlines()
    assert said[:3] == ["venv", "pip", "pip"]
    assert said[3].startswith("pip-itself torch==")
    assert said[4:] == ["pip"]


def test_without_torch_the_other_tests_run_and_the_gap_is_reported(
    tested_clone: Path, environment: dict[str, str]
) -> None:
    for _ in range(2):
        ended = run_tests(tested_clone, environment)
        assert (ended.returncode, ended.stdout) == (0, "tested\n")
        assert "the tests of training will be SKIPPED" in ended.stderr
    assert not os.path.lexists(tested_clone / ".venv.lock")
