"""The scripts of `examples/` run as they stand, over the scripted pool."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from clients import environments

EXAMPLES: Final = Path(__file__).parent.parent / "examples"
OUTPUTS: Final = {
    "ask.py": r"The answer, .*\n(scripted-\w+: done\n){3}answered, 0\.0 USD",
    "ask_async.py": r"Compare tea and coffee: .+\nCompare trains and cars: .+\nWhat is .+: .+",
    "stream.py": r"(?s).*\[scripted-analyst: done\].*\[scripted-lead: done\]",
    "own_worker.py": r"\d+ words",
    "own_grader.py": r"short: right\nboth: wrong",
    "retrieval.py": r"The warranty of the kettle is three years\.",
    "budget.py": r"(partial|exhausted) after 2 calls: .+",
    "guardrail.py": r"the model saw: Write to \[e-mail 1\]; .*ada@example\.com\n.*quote no prices",
}
"""What each script prints."""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return os.environ | {"PODIUM_HOME": str(tmp_path / "home"), "PODIUM_POOL": "scripted"}


@pytest.fixture
def address(tmp_path: Path, environment: dict[str, str]) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "podium", "serve", "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=tmp_path,
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


def run(command: list[str], environment: dict[str, str], directory: Path) -> str:
    ended = subprocess.run(
        command, env=environment, cwd=directory, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    assert "Unclosed" not in ended.stderr
    return ended.stdout.strip()


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_example_prints_what_it_should(
    name: str, environment: dict[str, str], tmp_path: Path
) -> None:
    printed = run([sys.executable, "-P", str(EXAMPLES / name)], environment, tmp_path)
    assert re.fullmatch(OUTPUTS[name], printed), printed


def test_an_agent_of_langgraph_calls_its_tool_through_podium(
    address: str, environment: dict[str, str], tmp_path: Path
) -> None:
    if not environments.is_ready("frameworks"):
        pytest.skip(environments.missing("frameworks"))
    python = str(environments.python_of("frameworks"))
    command = [python, "-P", str(EXAMPLES / "langgraph_agent.py")]
    printed = run(command, environment | {"PODIUM_URL": address}, tmp_path)
    assert printed == "I called the tool, and it said: It is sunny in Paris."


def test_coding_agents_are_pointed_at_a_server_that_answers(
    address: str, environment: dict[str, str], tmp_path: Path
) -> None:
    home = tmp_path / "codex"
    where = environment | {"PODIUM_URL": address, "CODEX_HOME": str(home)}
    printed = run([str(EXAMPLES / "coding_agent.sh")], where, tmp_path)
    assert f"ANTHROPIC_BASE_URL={address} " in printed
    written = tomllib.loads((home / "config.toml").read_text("utf-8"))
    assert written["model_providers"]["podium"]["base_url"] == f"{address}/v1"


def test_every_script_is_listed_and_run() -> None:
    scripts = {path.name for path in EXAMPLES.glob("*.*") if path.suffix in (".py", ".sh")}
    listed = set(re.findall(r"\| \[`([\w.]+\.(?:py|sh))`\]", (EXAMPLES / "README.md").read_text()))
    assert listed == scripts
    elsewhere = {"langgraph_agent.py", "coding_agent.sh", "own_trainer.py"}
    assert scripts == set(OUTPUTS) | elsewhere
