"""Virtual environments for peers, so that no peer is a dependency of Podium.

Each is made once, under the user's cache directory. A marker file is written last: an environment
without it, or of another Python, is made anew.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from podium._util.files import cache_dir, lock_file, write_atomically
from podium.core.errors import ConfigError

LONGEST_INSTALLATION_SECONDS: Final = 900.0
MARKER: Final = "podium-ready"

Command = tuple[str, ...]
OnProgress = Callable[[str], None]
"""Receives progress messages."""

InstallCommands = Callable[[Path, str], tuple[Command, ...]]
"""Returns the commands that make an environment with a requirement installed."""


class Peer(NamedTuple):
    """A package to measure beside Podium, at a fixed version."""

    package: str
    version: str
    extra: str = ""

    @property
    def requirement(self) -> str:
        return f"{self.package}{self.extra}=={self.version}"

    @property
    def directory(self) -> Path:
        return cache_dir() / "peers" / f"{self.package}-{self.version}"


LANGGRAPH: Final = Peer("langgraph", "1.2.20")
LITELLM: Final = Peer("litellm", "1.106.2", "[proxy]")


def python_in(directory: Path) -> Path:
    scripts = sysconfig.get_path("scripts", scheme="venv", vars={"base": str(directory)})
    return Path(scripts) / "python"


def install_commands(directory: Path, requirement: str) -> tuple[Command, ...]:
    pip = (str(python_in(directory)), "-P", "-m", "pip", "--disable-pip-version-check")
    return (
        (sys.executable, "-P", "-m", "venv", "--clear", str(directory)),
        (*pip, "--no-input", "install", "--quiet", requirement),
    )


async def prepare(
    peer: Peer, on_progress: OnProgress, commands: InstallCommands = install_commands
) -> Path:
    """Return the Python of the peer's environment, and make it first if it is missing.

    Other processes wait meanwhile. Raises `ConfigError` when it cannot be made.
    """
    directory = peer.directory
    directory.parent.mkdir(parents=True, exist_ok=True)
    async with lock_file(directory.with_name(f"{directory.name}.lock")):
        marker = directory / MARKER
        made_of = f"{peer.requirement} on Python {sys.version}\n"
        if not (marker.is_file() and marker.read_text("utf-8") == made_of):
            on_progress(f"installing {peer.requirement} in {directory} (once) …")
            marker.unlink(missing_ok=True)
            for command in commands(directory, peer.requirement):
                if reason := await asyncio.to_thread(_run, command):
                    raise ConfigError(
                        f"cannot install {peer.requirement} to measure beside Podium: {reason}. "
                        f"Check that pip reaches a package index, or leave the peers out with "
                        f"--no-peers"
                    )
            directory.mkdir(exist_ok=True)
            write_atomically(marker, made_of)
    return python_in(directory)


def _run(command: Command) -> str:
    """Run one command; return the last line of its output if it failed, else nothing."""
    try:
        ended = subprocess.run(  # noqa: S603 -- venv and pip
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LONGEST_INSTALLATION_SECONDS,
        )
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"not done within {LONGEST_INSTALLATION_SECONDS / 60:g} minutes"
    if ended.returncode == 0:
        return ""
    lines = ended.stdout.decode(errors="replace").split("\n")
    printed = [line.strip() for line in lines if line.strip()]
    return printed[-1] if printed else f"exit code {ended.returncode}"
