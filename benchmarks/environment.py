"""Environments for peers, so that no peer is a dependency of Podium.

Each is made once, under the user's cache directory, by pip in a virtual environment or by npm. A
marker file is written last: an environment without it, or of another Python, is made anew.
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

LONGEST_INSTALLATION_SECONDS: Final = 900.0
MARKER: Final = "podium-ready"

Command = tuple[str, ...]
OnProgress = Callable[[str], None]


class Peer(NamedTuple):
    """A package to measure beside Podium, at a fixed version; with a `script`, npm's."""

    package: str
    version: str
    extra: str = ""
    script: str = ""

    @property
    def requirement(self) -> str:
        separator = "@" if self.script else "=="
        return f"{self.package}{self.extra}{separator}{self.version}"

    @property
    def directory(self) -> Path:
        return cache_dir() / "peers" / f"{self.package.replace('/', '-')}-{self.version}"

    @property
    def program(self) -> Path:
        """The Python that has the package, or the script for Node.js."""
        if self.script:
            return self.directory / "node_modules" / self.package / self.script
        scripts = sysconfig.get_path("scripts", scheme="venv", vars={"base": str(self.directory)})
        return Path(scripts) / "python"


LANGGRAPH: Final = Peer("langgraph", "1.2.20")
LITELLM: Final = Peer("litellm", "1.106.2", "[proxy]")
PORTKEY: Final = Peer("@portkey-ai/gateway", "1.15.2", script="build/start-server.js")


def install_commands(peer: Peer) -> tuple[Command, ...]:
    where = str(peer.directory)
    if peer.script:
        return (("npm", "install", "--silent", "--no-audit", "--prefix", where, peer.requirement),)
    pip = (str(peer.program), "-P", "-m", "pip", "--disable-pip-version-check", "--no-input")
    return (
        (sys.executable, "-P", "-m", "venv", "--clear", where),
        (*pip, "install", "--quiet", peer.requirement),
    )


async def prepare(peer: Peer, on_progress: OnProgress) -> Path | None:
    """Return the peer's program, installed first if it is missing; None where that fails.

    Other processes wait meanwhile.
    """
    directory = peer.directory
    directory.parent.mkdir(parents=True, exist_ok=True)
    async with lock_file(directory.with_name(f"{directory.name}.lock")):
        marker = directory / MARKER
        made_of = f"{peer.requirement} on Python {sys.version}\n"
        if not (marker.is_file() and marker.read_text("utf-8") == made_of):
            on_progress(f"installing {peer.requirement} in {directory} (once) …")
            marker.unlink(missing_ok=True)
            for command in install_commands(peer):
                if reason := await asyncio.to_thread(_run, command):
                    on_progress(f"cannot install {peer.requirement}, so it is left out: {reason}")
                    return None
            directory.mkdir(exist_ok=True)
            write_atomically(marker, made_of)
    return peer.program


def _run(command: Command) -> str:
    """Run one command; return the last line of its output if it failed, else nothing."""
    try:
        subprocess.run(  # noqa: S603 -- venv, pip and npm
            command,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LONGEST_INSTALLATION_SECONDS,
        )
    except subprocess.CalledProcessError as error:
        printed = error.stdout.decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(printed) if line.strip()), str(error))
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return ""
