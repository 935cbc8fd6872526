from __future__ import annotations

import subprocess
import sys

import pytest

from cli.support import Podium
from podium import __version__
from podium.cli.app import COMMANDS

HEAVY = {"rich", "aiohttp", "sqlalchemy", "xllamacpp", "podium.cli.session", "podium.cli.ask"}


def test_the_version_is_one_line(podium: Podium) -> None:
    ended = podium("--version")
    assert (ended.code, ended.out) == (0, f"podium {__version__}\n")


def test_without_a_command_the_commands_are_listed(podium: Podium) -> None:
    ended = podium()
    assert ended.code == 0
    for name in ("ask", "plan", "run", "chat", "runs", "pool", "models", "doctor"):
        assert f"\n  {name} " in ended.out


@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_version_and_help_load_nothing_that_takes_long(argument: str) -> None:
    code = (
        "import sys; from podium.cli import main; code = main(sys.argv[1:]);"
        "print(*sys.modules, sep='\\n', file=sys.stderr); sys.exit(code)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, argument], capture_output=True, text=True, check=True
    )
    assert HEAVY.isdisjoint(ended.stderr.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_can_be_asked_for_help(podium: Podium, name: str) -> None:
    ended = podium(name, "--help")
    assert ended.code == 0
    assert ended.out.startswith(f"Usage: podium {name} ")
    if COMMANDS[name].module.startswith("podium.cli."):
        assert COMMANDS[name].help in " ".join(ended.out.split()), "the list says something else"


def test_a_part_that_is_not_installed_is_no_command(
    podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podium.cli.app._is_here", lambda place: "bench" not in place.module)
    assert "bench" not in podium("--help").out
    ended = podium("bench", "engine")
    assert ended.code == 2
    assert "there is no command 'bench'" in ended.complaint


def test_the_package_runs_as_a_module() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "podium", "ask"], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "podium: Missing argument 'QUESTION'; see podium ask --help\n"
