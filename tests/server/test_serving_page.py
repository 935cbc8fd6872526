"""The pages on serving and on keys work as they are written: their examples against `podium serve`
with the scripted pool, the configurations of clients, the options."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import pytest

from podium.cli import main
from podium.config import ServerSettings
from podium.server import startup as listening
from podium.server import startup as starting
from podium.server.startup import ServeOptions

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "reference" / "serving.md").read_text("utf-8")
ADDRESS: Final = "http://127.0.0.1:7755"
"""Where the page has the server listen."""


def blocks(language: str, page: str = PAGE) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def commands(program: str) -> list[str]:
    """The commands of that program in the page's sessions, comments and all."""
    lines = "\n".join(blocks("console")).replace("\\\n", " ").splitlines()
    return [line.removeprefix("$ ") for line in lines if re.match(rf"\$ (\./)?{program} ", line)]


@contextmanager
def podium_serve(home: Path, *options: str) -> Iterator[str]:
    """`podium serve` with the scripted pool, as the page starts it, on a port that is free; gives
    its address."""
    (serve,) = (command for command in commands("podium serve") if "scripted" in command)
    process = subprocess.Popen(
        [sys.executable, "-m", "podium", *shlex.split(serve)[1:], "--port", "0", *options],
        cwd=ROOT,
        env={**os.environ, "PODIUM_HOME": str(home), "PODIUM_CONFIG": ""},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        found = None
        while found is None:
            line = process.stderr.readline()
            assert line, "it ended before it listened"
            found = re.search(r"running on (http://[\d.]+:\d+)", line)
        yield found[1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with podium_serve(tmp_path_factory.mktemp("home")) as address:
        yield address


def said_by_shell(script: str, **environment: str) -> str:
    """What a shell says that is given the script."""
    ended = subprocess.run(
        ["bash", "-euc", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **environment},
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_every_call_of_curl_is_answered(address: str) -> None:
    called = commands("curl")
    assert len(called) >= 4
    for command in called:
        answer = json.loads(said_by_shell(command.replace(ADDRESS, address)))
        assert "error" not in answer, command
        assert answer["object"] in ("list", "chat.completion", "plan")


def test_a_key_that_is_made_while_the_server_runs_is_taken_at_once(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "keys.md").read_text("utf-8")
    sessions = [block for block in blocks("console", page) if "curl" in block]
    podium = f'podium() {{ {shlex.quote(sys.executable)} -m podium "$@"; }}\n'
    with podium_serve(tmp_path, "--keys") as address:
        models, created = (
            json.loads(
                said_by_shell(
                    podium
                    + session.replace("$ ", "", 1).replace("\n$ ", "\n").replace(ADDRESS, address),
                    PODIUM_HOME=str(tmp_path),
                )
            )
            for session in sessions
        )
        assert "podium-ultra" in [model["id"] for model in models["data"]]
        assert created["token"].startswith("pk_")
        refused = said_by_shell(f"curl {address}/v1/models")
    assert "error" in json.loads(refused)


@pytest.mark.parametrize("block", blocks("python"), ids=["tools", "anthropic", "again"])
def test_every_program_runs_and_says_what_was_answered(
    block: str, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(compile(block.replace(ADDRESS, address), "docs/reference/serving.md", "exec"), {})
    said = capsys.readouterr().out
    if "tools=" in block:
        assert said.splitlines() == [
            'get_weather {"city": "Paris"}',
            "I called the tool, and it said: sunny, 21 degrees",
        ]
    else:
        assert said.startswith("The answer")
        assert said.endswith("one run\n") == ("one run" in block)


def test_every_way_to_start_it_is_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    served: list[ServerSettings] = []

    def listen(chosen: ServeOptions, server: ServerSettings, bound: socket.socket) -> None:
        served.append(server)

    monkeypatch.setattr(starting, "serve", listen)
    monkeypatch.setattr(listening, "bind_socket", lambda server: closing(socket.socket()))
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path))
    monkeypatch.setenv(
        "PODIUM_CONFIG", str(ROOT / "src" / "podium" / "config" / "pools" / "scripted.toml")
    )
    monkeypatch.chdir(ROOT)
    ways = commands("podium serve")
    assert len(ways) >= 4
    for way in ways:
        assert main(shlex.split(way, comments=True)[1:]) == 0, capsys.readouterr().err
    assert {server.port for server in served} == {7755}
    assert {server.workers for server in served} == {1, 4}


def test_the_address_given_to_clients_leads_to_the_server() -> None:
    (codex,) = (tomllib.loads(block) for block in blocks("toml"))
    assert codex["model_providers"]["podium"]["base_url"] == f"{ADDRESS}/v1"
    (opencode,) = (json.loads(block) for block in blocks("json"))
    assert opencode["provider"]["podium"]["options"]["baseURL"] == f"{ADDRESS}/v1"
    assert f"$ export ANTHROPIC_BASE_URL={ADDRESS}\n" in PAGE


def test_agents_are_configured_with_models_that_exist(address: str) -> None:
    (codex,) = (tomllib.loads(block) for block in blocks("toml"))
    (opencode,) = (json.loads(block) for block in blocks("json"))
    claude_code = re.findall(r"export ANTHROPIC_(?:DEFAULT_\w+_)?MODEL=(\S+)", PAGE)
    named = {codex["model"], *opencode["provider"]["podium"]["models"], *claude_code}
    listed = json.loads(said_by_shell(f"curl {address}/v1/models"))["data"]
    assert named == {"podium", "podium-mini", "podium-ultra"}
    assert named <= {model["id"] for model in listed}
    assert codex["web_search"] == "disabled", "Codex offers a search that is refused"


def test_every_option_of_the_command_is_in_the_table() -> None:
    help_page = (ROOT / "docs" / "reference" / "cli.md").read_text("utf-8")
    section = help_page.partition("## podium serve\n")[2].partition("\n## ")[0]
    for option in re.findall(r"^  (--[a-z-]+)", section, re.MULTILINE):
        assert f"`{option}" in PAGE, option
