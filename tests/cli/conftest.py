"""The command line as a person meets it: a home of its own, pools in files, a vendor to reach."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cli.support import REPOSITORY, RULES, Ended, MakePool, Podium, Vendor
from podium.cli import main
from podium.workers.endpoints import KNOWN_ENDPOINTS
from podium_lab.etudes import ROLES


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with nothing in it, an environment without keys, an empty working directory."""
    home = tmp_path / "home"
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("PODIUM_HOME", str(home))
    for name in ("PODIUM_CALLED_AS", "PODIUM_CONFIG", "PODIUM_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    for known in KNOWN_ENDPOINTS.values():
        for variable in known.variables:
            monkeypatch.delenv(variable, raising=False)
    return home


@pytest.fixture
def podium(capsys: pytest.CaptureFixture[str]) -> Podium:
    """Run a command in this process."""

    def run(*arguments: str | Path) -> Ended:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Ended(code, out, err)

    return run


@pytest.fixture
def make_pool(tmp_path: Path) -> MakePool:
    """Write a pool file of scripted workers: a name, and what it replies (or several in turn)."""

    def make(
        replies: Mapping[str, str | list[str]] | None = None, *, head: str = "", tail: str = ""
    ) -> Path:
        tables = [head]
        for name, reply in ({"solver": "42"} if replies is None else replies).items():
            tables.append(
                f'[[worker]]\nname = "{name}"\nprovider = "scripted"\n'
                f"options = {{ reply = {json.dumps(reply)} }}"
            )
        path = tmp_path / "pool.toml"
        path.write_text("\n".join([*tables, tail]), "utf-8")
        return path

    return make


@pytest.fixture
def role_pool(make_pool: MakePool) -> Path:
    """A pool in which every worker says its own role."""
    return make_pool({role: role for role in ROLES}, head=RULES)


@pytest.fixture
def write_json(tmp_path: Path) -> Callable[[Any], Path]:
    """Write a JSON file."""

    def write(document: Any) -> Path:
        path = tmp_path / "workflow.json"
        path.write_text(json.dumps(document), "utf-8")
        return path

    return write


@pytest.fixture
def vendor() -> Iterator[Vendor]:
    vendor = Vendor()
    serving = threading.Thread(target=vendor.server.serve_forever, args=(0.01,), daemon=True)
    serving.start()
    yield vendor
    vendor.released.set()
    vendor.server.shutdown()
    serving.join()
    vendor.server.server_close()


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a command as a process of its own."""
    started: list[subprocess.Popen[str]] = []

    def start(
        *arguments: str | Path, stdin: int = subprocess.DEVNULL, stdout: int = subprocess.PIPE
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "podium", *map(str, arguments)],
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src")},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()
