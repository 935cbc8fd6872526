from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from benchmarks import environment
from benchmarks.environment import (
    LANGGRAPH,
    MARKER,
    PORTKEY,
    Command,
    Peer,
    install_commands,
    prepare,
)


class Installer:
    """Stands in for venv and pip: notes in a file each time that it is really run."""

    def __init__(self, notes: Path, last_command: str = "pass") -> None:
        self._notes = notes
        self._last_command = last_command

    def __call__(self, peer: Peer) -> tuple[Command, ...]:
        note = f"open({str(self._notes)!r}, 'a').write({peer.requirement!r} + '\\n')"
        return tuple((sys.executable, "-c", code) for code in (note, self._last_command))

    @property
    def installed(self) -> list[str]:
        return self._notes.read_text().splitlines() if self._notes.exists() else []


@pytest.fixture
def installer(podium_home: Path, monkeypatch: pytest.MonkeyPatch) -> Installer:
    installer = Installer(podium_home / "notes")
    monkeypatch.setattr(environment, "install_commands", installer)
    return installer


@pytest.fixture
def said() -> list[str]:
    return []


async def test_the_environment_is_created_once_and_reused(
    podium_home: Path, installer: Installer, said: list[str]
) -> None:
    python = await prepare(LANGGRAPH, said.append)
    again = await prepare(LANGGRAPH, said.append)
    directory = podium_home / "cache" / "peers" / f"langgraph-{LANGGRAPH.version}"
    assert python == again == LANGGRAPH.program
    assert LANGGRAPH.program.is_relative_to(directory)
    assert (directory / MARKER).is_file()
    assert installer.installed == [LANGGRAPH.requirement]
    assert len(said) == 1
    assert LANGGRAPH.requirement in said[0]


async def test_two_at_once_make_one_environment(installer: Installer, said: list[str]) -> None:
    await asyncio.gather(*(prepare(LANGGRAPH, said.append) for _ in range(2)))
    assert installer.installed == [LANGGRAPH.requirement]


async def test_an_environment_that_was_not_finished_is_made_again(
    podium_home: Path, installer: Installer, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Installer(podium_home / "notes", "raise SystemExit('the disk caught fire')")
    with monkeypatch.context() as patch:
        patch.setattr(environment, "install_commands", broken)
        assert await prepare(LANGGRAPH, said.append) is None
    assert not (LANGGRAPH.directory / MARKER).exists()
    await prepare(LANGGRAPH, said.append)
    assert len(installer.installed) == 2


async def test_an_environment_of_another_python_is_made_again(
    installer: Installer, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await prepare(LANGGRAPH, said.append)
    monkeypatch.setattr(sys, "version", "3.99.0")
    await prepare(LANGGRAPH, said.append)
    assert len(installer.installed) == 2


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (
            (sys.executable, "-c", "print('ERROR: no such version\\n'); raise SystemExit(1)"),
            "ERROR: no such version",
        ),
        (("/no/such/python",), "No such file or directory: '/no/such/python'"),
        ((sys.executable, "-c", "raise SystemExit(7)"), "exit status 7"),
    ],
)
@pytest.mark.usefixtures("podium_home")
async def test_a_peer_that_cannot_be_installed_is_left_out_with_the_reason(
    said: list[str], command: Command, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "install_commands", lambda _: (command,))
    assert await prepare(LANGGRAPH, said.append) is None
    assert reason in said[-1]
    assert LANGGRAPH.requirement in said[-1]


@pytest.mark.usefixtures("podium_home")
def test_a_python_peer_is_installed_by_its_own_pip() -> None:
    make, fill = install_commands(LANGGRAPH)
    assert make == (sys.executable, "-P", "-m", "venv", "--clear", str(LANGGRAPH.directory))
    assert fill[:4] == (str(LANGGRAPH.program), "-P", "-m", "pip")
    assert fill[-1] == f"langgraph=={LANGGRAPH.version}"


@pytest.mark.usefixtures("podium_home")
def test_a_node_peer_is_installed_by_npm_in_its_directory() -> None:
    (install,) = install_commands(PORTKEY)
    assert install[:2] == ("npm", "install")
    assert install[-2:] == (str(PORTKEY.directory), f"{PORTKEY.package}@{PORTKEY.version}")
    assert PORTKEY.program.is_relative_to(PORTKEY.directory / "node_modules")
