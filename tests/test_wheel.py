"""The wheel, built and installed into an environment of its own: no clone is needed to use it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import urllib.request
import venv
import zipfile
from pathlib import Path
from typing import Final

import pytest

pytest.importorskip("hatchling")

ROOT: Final = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-P", "-m", "hatchling", "build", "-t", "wheel", "-d"]
    subprocess.run(
        [*command, str(directory)], cwd=ROOT, check=True, capture_output=True, timeout=120
    )
    (built,) = directory.glob("podium_conductor-*.whl")
    return built


@pytest.fixture(scope="module")
def program(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`podium` of a fresh environment; its dependencies are those of this suite."""
    pytest.importorskip("pip")
    home = tmp_path_factory.mktemp("installed")
    venv.create(home)
    python = home / "bin" / "python"
    pip = [sys.executable, "-P", "-m", "pip", "--python", str(python), "install", "--no-deps"]
    subprocess.run([*pip, "--no-index", "--quiet", str(wheel)], check=True, timeout=120)
    (site,) = home.glob("lib/python*/site-packages")
    (site / "suite.pth").write_text(sysconfig.get_path("purelib"), "utf-8")
    return home / "bin" / "podium"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return kept | {"PODIUM_HOME": str(tmp_path / "home"), "PODIUM_LOCAL_SERVERS": "off"}


def test_the_wheel_has_every_file_of_the_packages(wheel: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "src/podium", "lab/podium_lab"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("no repository is here to compare with")
    tracked = {name.partition("/")[2] for name in listed.stdout.splitlines()}
    assert tracked - set(zipfile.ZipFile(wheel).namelist()) == set()
    assert len(tracked) > 100


def test_the_installed_program_answers_without_a_clone(
    program: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    def run(*arguments: str) -> str:
        return subprocess.run(
            [program, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout

    assert re.fullmatch(r"podium \d+\.\d+\.\d+\S*\n", run("--version"))
    answered = json.loads(run("ask", "--pool", "scripted", "Compare tea and coffee", "--json"))
    assert (answered["status"], len(answered["steps"])) == ("answered", 3)
    assert "qwen2.5-coder-1.5b-instruct" in run("models", "list")
    assert "scripted-lead" in run("doctor", "--pool", "scripted")


def test_the_installed_program_serves_its_pages_and_all_that_they_load(
    program: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [program, "serve", "--pool", "scripted", "--port", "0"],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        address = None
        while address is None:
            line = process.stderr.readline()
            assert line, "it ended before it listened"
            address = re.search(r"running on (http://[\d.]+:\d+)", line)
        page = read(f"{address[1]}/")
        loaded = re.findall(r'(?:src|href)="(/[^"]+\.(?:js|css|svg))"', page)
        assert len(loaded) >= 3
        for path in loaded:
            assert read(address[1] + path)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)


def read(address: str) -> str:
    with urllib.request.urlopen(address, timeout=10) as response:
        text: str = response.read().decode()
    return text
