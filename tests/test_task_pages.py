"""The six task pages: every command that can run offline runs, and every example loads."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from podium.cli import main
from podium.config import load

ROOT: Final = Path(__file__).parent.parent
ADDRESS: Final = "http://127.0.0.1:7755"
MAX_WORDS: Final = 900
NOT_RUN: Final = {
    "start": (
        "installs packages",
        "installs packages",
        "downloads a model",
        "needs a key",
        "serves until it is stopped",
        "installs packages",
    ),
    "connect-models": ("needs a key", "needs a key", "downloads a model"),
    "serve-a-team": ("serves until it is stopped", "needs Docker, Kubernetes or Postgres"),
    "evaluate": ("needs a key and the hub",),
    "train": ("needs a key", "needs a GPU", "needs a key and a GPU"),
    "troubleshoot": (),
}
"""The blocks of each page that are not run here, by the reason that stands before them."""
SHELL: Final = f"""
podium() {{ {shlex.quote(sys.executable)} -P -m podium "$@"; }}
python() {{ {shlex.quote(sys.executable)} -P "$@"; }}
curl() {{ command curl --silent --show-error --fail "$@"; }}
"""


class Block(NamedTuple):
    """A fenced block of a page, and what stands before it."""

    before: str
    language: str
    text: str

    @property
    def not_run(self) -> str | None:
        found = re.search(r"<!-- not run: (.+?) -->\n\Z", self.before)
        return found[1] if found else None

    @property
    def file(self) -> str | None:
        """The name under which the page has the block saved."""
        named = re.findall(
            r"`([\w-]+\.(?:toml|jsonl))`", self.before.rstrip().rpartition("\n\n")[2]
        )
        return named[-1] if named else None


def text_of(page: str) -> str:
    return (ROOT / "docs" / f"{page}.md").read_text("utf-8")


def blocks(page: str) -> list[Block]:
    parts = re.split(r"^```(\w+)\n(.*?)^```$\n", text_of(page), flags=re.M | re.S)
    return [Block(*parts[n : n + 3]) for n in range(0, len(parts) - 1, 3)]


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with what a clone has, without any key."""
    for name in ("pools", "examples", "recipes", "results"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PODIUM_CONFIG", "")
    monkeypatch.setenv("PODIUM_LOCAL_SERVERS", "off")
    return tmp_path


@pytest.fixture
def address(where: Path) -> Iterator[str]:
    """The address of a server with keys over the scripted pool."""
    command = "serve --keys --pool scripted --port 0"
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "podium", *command.split()],
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


def run_session(session: str) -> None:
    """Run the commands of a block: in a shell where it is used, else in this process."""
    script = "\n".join(re.findall(r"^\$ (.*?(?:\\\n.*?)*)$", session, re.M))
    if "PYTHONPATH" in os.environ or re.search(r"^(?!podium )|\$\(|>", script, re.M):
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", SHELL + script],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert ended.returncode == 0, f"{script}\n{ended.stderr}"
        return
    for command in script.splitlines():
        assert main(shlex.split(command, comments=True)[1:]) == 0, command


def run_page(page: str) -> int:
    """Run what can run of a page, from top to bottom; return how many sessions that were."""
    ran = 0
    for block in blocks(page):
        if block.language in ("toml", "jsonl") and block.file is not None:
            Path(block.file).write_text(block.text, "utf-8")
        elif block.language == "python":
            exec(compile(block.text, f"docs/{page}.md", "exec"), {})
        elif block.language == "console" and block.not_run is None:
            run_session(block.text)
            ran += 1
    return ran


BARE: Final = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name in {blocked}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
"""
"""A `sitecustomize` that hides packages."""


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide every package that a fresh clone does not install."""
    listed = (ROOT / "requirements.lock").read_text("utf-8")
    installed = set(re.findall(r"^([\w.-]+)==", listed, re.M)) | {"podium-conductor"}
    blocked = {
        name
        for name, sources in packages_distributions().items()
        if not installed & {re.sub(r"[-_.]+", "-", source.lower()) for source in sources}
    }
    assert "numpy" in blocked
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "sitecustomize.py").write_text(BARE.format(blocked=blocked), "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "bare"))


@pytest.mark.parametrize("page", ["evaluate", "train"])
def test_every_command_of_a_page_runs_without_any_extra(page: str, where: Path, bare: None) -> None:
    assert run_page(page) >= 3


@pytest.mark.parametrize("page", ["start", "evaluate", "train", "troubleshoot"])
def test_every_command_of_a_page_that_can_run_offline_runs(page: str, where: Path) -> None:
    assert run_page(page) >= 3


def test_every_command_of_connect_models_that_can_run_offline_runs(where: Path) -> None:
    for block in blocks("connect-models"):
        if block.language == "console" and block.not_run is None:
            run_session(block.text)


def test_every_command_of_serve_a_team_runs_against_a_server(where: Path, address: str) -> None:
    ran = 0
    for block in blocks("serve-a-team"):
        if block.language == "console" and block.not_run is None:
            run_session(block.text.replace(ADDRESS, address))
            ran += 1
    assert ran == 5


def test_the_client_of_serve_a_team_gets_an_answer(
    where: Path, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("openai")
    (program,) = (block.text for block in blocks("serve-a-team") if block.language == "python")
    assert main(["keys", "create", "me"]) == 0
    token = capsys.readouterr().out.strip()
    exec(program.replace(ADDRESS, address).replace("pk_...", token), {})
    assert capsys.readouterr().out.startswith("The answer")


TABLES = [
    (page, block.text)
    for page in ("connect-models", "serve-a-team", "train")
    for block in blocks(page)
    if block.language == "toml"
]


@pytest.mark.parametrize(("page", "table"), TABLES)
def test_every_configuration_on_the_pages_loads(page: str, table: str, where: Path) -> None:
    worker = '\n[[worker]]\nname = "one"\nprovider = "scripted"\n'
    text = table if "[[worker]]" in table else table + worker
    file = where / "podium.toml"
    file.write_text(text, "utf-8")
    assert len(load(file).workers) == text.count("[[worker]]")


@pytest.mark.parametrize("page", NOT_RUN)
def test_skipped_commands_state_their_reason(page: str) -> None:
    assert tuple(block.not_run for block in blocks(page) if block.not_run) == NOT_RUN[page]


@pytest.mark.parametrize("page", NOT_RUN)
def test_a_task_page_is_short(page: str) -> None:
    assert len(text_of(page).split()) <= MAX_WORDS
