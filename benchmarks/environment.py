"""Virtual environments for peers, so that no peer is a dependency of Podium.

Each is made once, under the user's cache directory. A marker file is written last: an environment
without it, or of another Python, is made anew.
"""

from __future__ import annotations

import asyncio
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from podium._util.files import cache_dir, explain_write_errors, lock_file, write_atomically
from podium.core.errors import ConfigError

LONGEST_INSTALLATION_SECONDS: Final = 900.0
MARKER: Final = "podium-ready"

Command = tuple[str, ...]
OnProgress = Callable[[str], None]
"""Receives progress messages."""

InstallCommands = Callable[[Path, str], tuple[Command, ...]]
"""Returns the commands that make an environment with a requirement installed."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A package to measure beside Podium, at a fixed version.

    `needed_bytes` must be free on the disk before it is installed.
    """

    package: str
    version: str
    needed_bytes: int
    extra: str = ""

    @property
    def requirement(self) -> str:
        """The requirement for pip."""
        extra = f"[{self.extra}]" if self.extra else ""
        return f"{self.package}{extra}=={self.version}"

    @property
    def directory(self) -> Path:
        """The directory of its environment."""
        return cache_dir() / "peers" / f"{self.package}-{self.version}"


LANGGRAPH: Final = Peer("langgraph", "1.2.20", needed_bytes=200_000_000)
LITELLM: Final = Peer("litellm", "1.106.2", needed_bytes=1_200_000_000, extra="proxy")


def python_in(directory: Path) -> Path:
    """Return the Python of the environment in that directory."""
    scripts = sysconfig.get_path("scripts", scheme="venv", vars={"base": str(directory)})
    return Path(scripts) / "python"


def install_commands(directory: Path, requirement: str) -> tuple[Command, ...]:
    """Return the commands that make the environment and install with its own pip."""
    pip = (str(python_in(directory)), "-P", "-m", "pip", "--disable-pip-version-check")
    return (
        (sys.executable, "-P", "-m", "venv", "--clear", str(directory)),
        (*pip, "--no-input", "install", "--quiet", requirement),
    )


async def prepare(
    peer: Peer, on_progress: OnProgress, commands: InstallCommands = install_commands
) -> Path:
    """Return the Python of the peer's environment, and make it first if it is missing.

    Other processes wait meanwhile. Raises `ConfigError` when it cannot be made, and `StoreError`
    when the disk is full.
    """
    directory = peer.directory
    with explain_write_errors(directory.parent, 0):
        async with lock_file(directory.with_name(f"{directory.name}.lock")):
            marker = directory / MARKER
            made_of = f"{peer.requirement} on Python {sys.version}\n"
            if not (marker.is_file() and marker.read_text("utf-8") == made_of):
                on_progress(f"installing {peer.requirement} in {directory} (once) …")
                with explain_write_errors(directory, peer.needed_bytes):
                    marker.unlink(missing_ok=True)
                    for command in commands(directory, peer.requirement):
                        await _run(command, peer)
                    write_atomically(marker, made_of)
    return python_in(directory)


async def _run(command: Command, peer: Peer) -> None:
    """Run one command to its end; no process is left behind."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    except OSError as error:
        raise _failed(peer, f"{command[0]}: {error.strerror}") from error
    reading = asyncio.ensure_future(process.communicate())
    try:
        async with asyncio.timeout(LONGEST_INSTALLATION_SECONDS):
            output, _ = await asyncio.shield(reading)
    except TimeoutError as error:
        minutes = LONGEST_INSTALLATION_SECONDS / 60
        raise _failed(peer, f"not done within {minutes:g} minutes") from error
    finally:
        if process.returncode is None:
            process.kill()
            await reading
    if process.returncode != 0:
        lines = output.decode(errors="replace").split("\n")
        reason = next((line.strip() for line in reversed(lines) if line.strip()), "")
        raise _failed(peer, reason or f"exit code {process.returncode}")


def _failed(peer: Peer, reason: str) -> ConfigError:
    return ConfigError(
        f"cannot install {peer.requirement} to measure beside Podium: {reason}. Check that pip "
        f"reaches a package index, or leave the peers out with --no-peers"
    )
