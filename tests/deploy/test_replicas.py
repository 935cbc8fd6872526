"""`deploy/replicas/start` as it stands: two replicas over a real Postgres, used by turns through
OpenAI's SDK, one of them killed, and the other stopped as an operator would."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Final

import httpx
import openai
import pytest

from podium.cli import main
from support.postgres import Postgres

START: Final = Path(__file__).parents[2] / "deploy" / "replicas" / "start"
PATIENCE_SECONDS: Final = 60.0

CONFIGURATION: Final = """
[conductor]
kind = "router"
[store]
url = "{url}"
lease_seconds = 3
[server]
require_keys = true
[[worker]]
name = "sums"
provider = "scripted"
price = {{ input = 1.0, output = 1.0 }}
options = {{ reply = "Forty-two." }}
"""


@dataclass(frozen=True)
class Replicas:
    """Two replicas that were started together, and a key."""

    process: subprocess.Popen[bytes]
    ports: tuple[int, int]
    key: str

    def client(self, port: int) -> openai.OpenAI:
        return openai.OpenAI(
            base_url=f"http://127.0.0.1:{port}/v1", api_key=self.key, max_retries=0
        )

    def fetch(self, port: int, path: str) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.key}"}
        return httpx.get(f"http://127.0.0.1:{port}{path}", headers=headers, trust_env=False)

    def process_of(self, port: int) -> int:
        """The id of the one that listens there."""
        listening = f"--port {port}"
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        for child in map(int, children.split()):
            if listening in Path(f"/proc/{child}/cmdline").read_text().replace("\0", " "):
                return child
        raise AssertionError(f"nobody was started for {port}")


def two_ports() -> tuple[int, int]:
    """Two free ports that stand side by side."""
    for _ in range(50):
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            first: int = one.getsockname()[1]
            try:
                other.bind(("127.0.0.1", first + 1))
            except (OSError, OverflowError):
                continue
            return first, first + 1
    raise AssertionError("no two ports are free side by side")


@pytest.fixture
async def address(postgres: Postgres) -> str:
    return await postgres.empty("replicas")


@contextmanager
def started(
    directory: Path, address: str, capsys: pytest.CaptureFixture[str]
) -> Iterator[Replicas]:
    config = directory / "podium.toml"
    config.write_text(CONFIGURATION.format(url=address), "utf-8")
    scopes = ("--scope", "ask", "--scope", "runs:read")
    assert main(["keys", "create", "me", *scopes, "--config", str(config)]) == 0
    key = capsys.readouterr().out.split()[-1]
    ports = two_ports()
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [START, "2", "--config", config],
            env={
                **os.environ,
                "PODIUM": f"{sys.executable} -P -m podium",
                "PODIUM_FIRST_PORT": str(ports[0]),
                "PODIUM_HOME": str(directory),
            },
            stdout=log,
            stderr=log,
        )
    replicas = Replicas(process, ports, key)
    try:
        until = time.monotonic() + PATIENCE_SECONDS
        while not all(is_ready(port) for port in ports):
            assert process.poll() is None, (directory / "log").read_text()
            assert time.monotonic() < until, (directory / "log").read_text()
            time.sleep(0.02)
        yield replicas
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(PATIENCE_SECONDS)


def is_ready(port: int) -> bool:
    try:
        answer = httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False)
    except httpx.TransportError:
        return False
    return answer.status_code == 200


def ask(client: openai.OpenAI, model: str = "podium-mini") -> str | None:
    answer = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "Six times seven?"}]
    )
    return answer.choices[0].message.content


def test_two_replicas_serve_by_turns_and_one_continues_when_the_other_is_killed(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with started(tmp_path, address, capsys) as replicas:
        one, other = clients = [replicas.client(port) for port in replicas.ports]
        answers = [ask(client) for client in islice(cycle(clients), 6)]
        assert answers == ["Forty-two."] * 6
        pieces = other.chat.completions.create(
            model="podium-mini",
            messages=[{"role": "user", "content": "Six times seven?"}],
            stream=True,
        )
        assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == "Forty-two."
        seen = [replicas.fetch(port, "/v1/runs?limit=50").json() for port in replicas.ports]
        assert len(seen[0]["data"]) == 7
        assert [run["run_id"] for run in seen[0]["data"]] == [
            run["run_id"] for run in seen[1]["data"]
        ]
        os.kill(replicas.process_of(replicas.ports[0]), signal.SIGKILL)
        with pytest.raises(openai.APIConnectionError):
            ask(one)
        assert [ask(other) for _ in range(3)] == ["Forty-two."] * 3
        assert replicas.process.poll() is None, "one that ends leaves the others to go on"
        replicas.process.terminate()
        assert replicas.process.wait(PATIENCE_SECONDS) == 128 + signal.SIGKILL
        for client in clients:
            client.close()


@pytest.mark.parametrize("said", [[], ["three"], ["0"], ["--config"]])
def test_without_a_number_it_says_how_it_is_called(said: list[str]) -> None:
    ended = subprocess.run([START, *said], capture_output=True, text=True)
    assert ended.returncode == 2
    assert "expected how many replicas, such as: deploy/replicas/start 3" in ended.stderr


ECHO: Final = """#!/bin/sh
echo "{who}: $*"
"""


def program(path: Path, who: str) -> Path:
    """A fake program that prints its name and arguments."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(ECHO.format(who=who), "utf-8")
    path.chmod(0o755)
    return path


def said_by(start: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """What two replicas say that are started by it, in an environment without Podium."""
    return subprocess.run(
        [start, "2", "--config", "a pool.toml"],
        env={"PATH": "/usr/bin:/bin", "PODIUM_FIRST_PORT": "9001", **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )


def copied_to(clone: Path) -> Path:
    start = clone / "deploy" / "replicas" / "start"
    start.parent.mkdir(parents=True)
    shutil.copy(START, start)
    return start


def test_in_a_clone_the_clones_podium_is_started_by_default(tmp_path: Path) -> None:
    start = copied_to(tmp_path / "a clone")
    program(tmp_path / "a clone" / "podium", "clone")
    (tmp_path / "link").symlink_to(start)
    arguments = [f"serve --port {port} --config a pool.toml" for port in (9001, 9002)]
    for called in (start, tmp_path / "link"):
        ended = said_by(called)
        assert ended.returncode == 0, ended.stderr
        assert sorted(ended.stdout.splitlines()) == [f"clone: {item}" for item in arguments]
    installed = program(tmp_path / "bin" / "podium", "installed")
    with_one = {"PATH": f"{installed.parent}:/usr/bin:/bin"}
    assert {line.split(":")[0] for line in said_by(start, **with_one).stdout.splitlines()} == {
        "installed"
    }
    named = said_by(start, **with_one, PODIUM="echo -n named:").stdout
    assert sorted(named.split("named: ")[1:]) == arguments


def test_without_any_podium_it_says_what_it_looked_for(tmp_path: Path) -> None:
    ended = said_by(copied_to(tmp_path))
    assert ended.returncode == 2
    assert "expected podium on the PATH, or this file in a clone; set PODIUM" in ended.stderr


@pytest.mark.parametrize("page", ["scaling.md", "deployment.md"])
def test_the_pages_name_the_extra_that_postgres_needs(page: str) -> None:
    text = (START.parents[2] / "docs" / "reference" / page).read_text("utf-8")
    assert ".venv/bin/python -m pip install -e '.[postgres]'" in text
