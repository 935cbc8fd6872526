"""Sources of a benchmark's rows: local files, or the Hugging Face hub.

A row has the benchmark's own columns, which `readers` interprets.
"""

from __future__ import annotations

import gzip
import importlib
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final

from podium.core.errors import ConfigError, install_command
from podium.tasks.records import json_lines, open_text

PROBE_SECONDS: Final = 5.0
"""The timeout of the hub's reachability probe."""

_CLIENTS: Final = ("huggingface_hub.constants", "datasets.config")
_SETTING: Final = "HF_HUB_OFFLINE"


def is_hub_reachable() -> bool:
    """True if the hub responds at the endpoint that its clients use."""
    constants = importlib.import_module("huggingface_hub.constants")
    session = importlib.import_module("huggingface_hub.utils").get_session()
    try:
        session.head(constants.ENDPOINT, timeout=PROBE_SECONDS)
    except Exception:  # noqa: BLE001 - the client's own kinds change with its version
        return False
    return True


@contextmanager
def hub_offline() -> Iterator[None]:
    """Make the hub's clients use only their caches."""
    clients = [importlib.import_module(name) for name in _CLIENTS]
    before = [getattr(client, _SETTING) for client in clients]
    for client in clients:
        setattr(client, _SETTING, True)
    try:
        yield
    finally:
        for client, setting in zip(clients, before, strict=True):
            setattr(client, _SETTING, setting)


@dataclass(frozen=True, slots=True)
class DatasetRow:
    """One row of a benchmark."""

    where: str
    number: int
    data: Mapping[str, Any]

    def text(self, column: str) -> str:
        """Return the text of a column."""
        value = self.data.get(column)
        if not isinstance(value, str) or not value.strip():
            raise ConfigError(
                f"expected a text in {column!r}; there are {', '.join(self.data) or 'no columns'}"
            )
        return value


@dataclass(frozen=True, slots=True)
class HubDataset:
    """A dataset of the hub: its name, and configurations with a split, or one file.

    A file avoids running a dataset that is a script.
    """

    name: str
    split: str = "train"
    configurations: tuple[str | None, ...] = (None,)
    file: str | None = None

    def rows(self) -> Iterator[DatasetRow]:
        """Yield every row; the package `datasets` caches them."""
        datasets = import_optional("datasets", f"fetching {self.name} from the hub")
        reachable = is_hub_reachable()
        with nullcontext() if reachable else hub_offline():
            loaded = [
                self._load(datasets, configuration, reachable)
                for configuration in self.configurations
            ]
        for number, data in enumerate(chain.from_iterable(loaded), start=1):
            yield DatasetRow(f"{self.name}, row {number}", number, data)

    def _load(
        self, datasets: Any, configuration: str | None, is_hub_reachable: bool
    ) -> Iterable[Mapping[str, Any]]:
        try:
            if self.file is not None:
                address = f"hf://datasets/{self.name}/{self.file}"
                loaded = datasets.load_dataset("json", data_files=address, split="train")
            else:
                loaded = datasets.load_dataset(self.name, configuration, split=self.split)
        except Exception as error:  # the clients below it raise errors of their own
            reason = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
            if not is_hub_reachable:
                reason = "it does not answer, and nothing of it was kept"
            raise ConfigError(
                f"cannot fetch {self.name} from the hub: {reason}; with its files on this "
                f"machine, name their directory: podium eval run --data DIR, or in a recipe "
                f"data.mix.path or data.suite.path"
            ) from error
        rows: Iterable[Mapping[str, Any]] = loaded
        return rows


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """A benchmark's local files: `names` are tried in a directory and in `folder` inside it.

    `archive` reads directories and zip files.
    """

    names: tuple[str, ...]
    folder: str
    archive: Callable[[Path], Iterator[DatasetRow]] | None = None

    def rows(self, data: Path) -> Iterator[DatasetRow]:
        """Yield every row of the file, which is `data` or in it."""
        path = self._find(data)
        if self.archive is not None and (path.is_dir() or path.suffix == ".zip"):
            return self.archive(path)
        if path.suffix == ".parquet":
            return _parquet_rows(path)
        if path.suffix == ".json":
            return _json_rows(path)
        return _jsonl_rows(path)

    def _find(self, data: Path) -> Path:
        if data.is_file():
            return data
        if not data.is_dir():
            raise ConfigError(f"{data}: there is no such file or directory")
        tried = [folder / name for folder in (data, data / self.folder) for name in self.names]
        for path in tried:
            if path.exists():
                return path
        raise ConfigError(
            f"{data}: expected {' or '.join(self.names)} in it, or in {self.folder} inside it; "
            f"without a directory the hub is asked"
        )


def import_optional(module: str, purpose: str, extra: str = "eval") -> Any:
    """Import a module; ConfigError names the extra if it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0].replace("_", "-")
        raise ConfigError(
            f"{purpose} needs the package {package}, which is not installed: "
            f"{install_command(extra)}"
        ) from error


def _jsonl_rows(path: Path) -> Iterator[DatasetRow]:
    with _unzipping(path) if path.suffix == ".gz" else open_text(path) as file:
        for number, data in json_lines(path, file):
            if not isinstance(data, Mapping):
                raise ConfigError(f"{path}, line {number}: expected an object")
            yield DatasetRow(f"{path}, line {number}", number, data)


@contextmanager
def _unzipping(path: Path) -> Iterator[io.TextIOBase]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            assert isinstance(file, io.TextIOBase)
            yield file
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error


def _json_rows(path: Path) -> Iterator[DatasetRow]:
    with open_text(path) as file:
        try:
            listed = json.load(file)
        except ValueError as error:
            raise ConfigError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(listed, list) or not all(isinstance(data, Mapping) for data in listed):
        raise ConfigError(f"{path}: expected a list of objects")
    for number, data in enumerate(listed, start=1):
        yield DatasetRow(f"{path}, object {number}", number, data)


def _parquet_rows(path: Path) -> Iterator[DatasetRow]:
    parquet = import_optional("pyarrow.parquet", f"reading {path.name}")
    number = 0
    for batch in parquet.ParquetFile(path).iter_batches():
        for data in batch.to_pylist():
            number += 1
            yield DatasetRow(f"{path}, row {number}", number, data)
