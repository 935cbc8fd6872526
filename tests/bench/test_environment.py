from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from benchmarks.environment import LANGGRAPH, MARKER, Command, install_commands, prepare, python_in
from podium.core.errors import ConfigError


class Installer:
    """Stands in for venv and pip: notes in a file each time that it is really run."""

    def __init__(self, notes: Path, last_command: str = "pass") -> None:
        self._notes = notes
        self._last_command = last_command

    def __call__(self, directory: Path, requirement: str) -> tuple[Command, ...]:
        note = f"open({str(self._notes)!r}, 'a').write({requirement!r} + '\\n')"
        return tuple((sys.executable, "-c", code) for code in (note, self._last_command))

    @property
    def installed(self) -> list[str]:
        return self._notes.read_text().splitlines() if self._notes.exists() else []


@pytest.fixture
def installer(podium_home: Path) -> Installer:
    return Installer(podium_home / "notes")


@pytest.fixture
def said() -> list[str]:
    return []


async def test_the_environment_is_made_once_in_the_cache_and_used_again(
    podium_home: Path, installer: Installer, said: list[str]
) -> None:
    python = await prepare(LANGGRAPH, said.append, installer)
    again = await prepare(LANGGRAPH, said.append, installer)
    directory = podium_home / "cache" / "peers" / f"langgraph-{LANGGRAPH.version}"
    assert python == again == python_in(directory)
    assert (directory / MARKER).is_file()
    assert installer.installed == [LANGGRAPH.requirement]
    assert len(said) == 1
    assert LANGGRAPH.requirement in said[0]


async def test_two_at_once_make_one_environment(installer: Installer, said: list[str]) -> None:
    await asyncio.gather(*(prepare(LANGGRAPH, said.append, installer) for _ in range(2)))
    assert installer.installed == [LANGGRAPH.requirement]


async def test_an_environment_that_was_not_finished_is_made_again(
    podium_home: Path, installer: Installer, said: list[str]
) -> None:
    broken = Installer(podium_home / "notes", "raise SystemExit('the disk caught fire')")
    with pytest.raises(ConfigError):
        await prepare(LANGGRAPH, said.append, broken)
    assert not (LANGGRAPH.directory / MARKER).exists()
    await prepare(LANGGRAPH, said.append, installer)
    assert len(installer.installed) == 2


async def test_an_environment_of_another_python_is_made_again(
    installer: Installer, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await prepare(LANGGRAPH, said.append, installer)
    monkeypatch.setattr(sys, "version", "3.99.0")
    await prepare(LANGGRAPH, said.append, installer)
    assert len(installer.installed) == 2


async def test_a_failed_installation_says_why_and_how_to_go_on_without(
    podium_home: Path, said: list[str]
) -> None:
    offline = "print('retrying'); print('ERROR: no matching distribution\\n'); raise SystemExit(1)"
    with pytest.raises(ConfigError) as caught:
        await prepare(LANGGRAPH, said.append, Installer(podium_home / "notes", offline))
    message = str(caught.value)
    assert LANGGRAPH.requirement in message
    assert "ERROR: no matching distribution" in message
    assert "--no-peers" in message


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (("/no/such/python",), "/no/such/python: No such file"),
        ((sys.executable, "-c", "raise SystemExit(7)"), "exit code 7"),
    ],
)
async def test_a_silent_installer_is_named_with_its_exit_code(
    podium_home: Path, said: list[str], command: Command, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        await prepare(LANGGRAPH, said.append, lambda directory, requirement: (command,))


def test_the_environment_is_made_by_this_python_and_filled_by_its_own_pip(tmp_path: Path) -> None:
    make, fill = install_commands(tmp_path, "langgraph==1.0")
    assert make == (sys.executable, "-P", "-m", "venv", "--clear", str(tmp_path))
    assert fill[:4] == (str(python_in(tmp_path)), "-P", "-m", "pip")
    assert fill[-1] == "langgraph==1.0"
