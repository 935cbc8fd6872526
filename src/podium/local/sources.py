"""What a local model's name says: where its weights come from.

    smollm2-135m-instruct              one that Podium knows (`models.toml`)
    hf:owner/repository/file.gguf      a file on the hub
    file:/path/to/file.gguf            a file that is already here; `file:` may be left out
    embedded/etude-conductor           an adapter that Podium ships (`adapters`)

Models that transformers runs have two names more, which are no weights of Podium's:

    ./directory, file:/path/to/it      a directory that transformers saved
    owner/name                         a whole repository on the hub

Nothing is fetched here.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final

from podium.errors import ConfigError
from podium.local import adapters
from podium.local.adapters import ShippedAdapter

_HUB_FILE: Final = re.compile(
    r"(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w.-]+))?/(?P<file>[\w./ -]+\.gguf)"
)

_PATHS: Final = (".", "~", "/")
"""How paths begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagedModel:
    """One entry of `models.toml`: a file, and the package that carries it."""

    name: str
    file: str
    package: str
    version: str
    member: str
    sha256: str
    bytes: int
    download_bytes: int
    licence: str
    description: str

    @property
    def requirement(self) -> str:
        """The package as an installer wants it named."""
        return f"{self.package}=={self.version}"


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository on the hub, at a revision."""

    repository: str
    file: str
    revision: str = "main"

    @property
    def name(self) -> str:
        """The name by which this file is pulled."""
        return f"hf:{self._repository_at_revision}/{self.file}"

    @property
    def path(self) -> Path:
        """Where it lies below the directory of models."""
        return Path("hub", self._repository_at_revision, self.file)

    @property
    def _repository_at_revision(self) -> str:
        return self.repository + ("" if self.revision == "main" else f"@{self.revision}")


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file that is already on this machine."""

    path: Path

    @property
    def name(self) -> str:
        """The name by which this file is located."""
        return f"file:{self.path}"


Source = PackagedModel | HubFile | LocalFile | ShippedAdapter


@cache
def packaged_models() -> tuple[PackagedModel, ...]:
    """The models of `models.toml`, in its order."""
    text = resources.files("podium.local").joinpath("models.toml").read_text("utf-8")
    return tuple(PackagedModel(**entry) for entry in tomllib.loads(text)["model"])


def source(name: str) -> Source:
    """Where the model of that name comes from."""
    if name.startswith(adapters.PREFIX):
        return adapters.shipped_adapter(name)
    if name.startswith("hf:"):
        return _hub_file(name)
    if name.startswith("file:") or name.endswith(".gguf"):
        return LocalFile(Path(name.removeprefix("file:")).expanduser().absolute())
    return _packaged_model(name)


def weights_file(name: str) -> str | None:
    """The weights that a model of transformers is read from, by the name that `source` takes; None
    for a directory, and for a repository on the hub."""
    if _is_directory(name) or is_repository(name):
        return None
    return f"file:{name}" if name.startswith(_PATHS) else name


def is_repository(name: str) -> bool:
    """Whether the name is that of a whole repository on the hub, `owner/name`."""
    is_elsewhere = not name.startswith((*_PATHS, "file:", "hf:", adapters.PREFIX))
    is_whole = name.count("/") == 1 and not name.endswith(".gguf")
    return is_elsewhere and is_whole and not _is_directory(name)


def _is_directory(name: str) -> bool:
    return Path(name.removeprefix("file:")).expanduser().is_dir()


def _hub_file(name: str) -> HubFile:
    found = _HUB_FILE.fullmatch(name.removeprefix("hf:"))
    if found is None or not {".", ".."}.isdisjoint(name.removeprefix("hf:").split("/")):
        raise ConfigError(
            f"{name} does not name a file on the hub; write hf:owner/repository/file.gguf, "
            f"or hf:owner/repository@revision/file.gguf"
        )
    return HubFile(found["repository"], found["file"], found["revision"] or "main")


def _packaged_model(name: str) -> PackagedModel:
    models = {model.name: model for model in packaged_models()}
    if name in models:
        return models[name]
    close = get_close_matches(name, models, 1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(models)}."
    raise ConfigError(
        f"no local model is named {name!r}; {hint} A file on the hub is named "
        f"hf:owner/repository/file.gguf, and one on this machine file:/path/to/file.gguf"
    )
