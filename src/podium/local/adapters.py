"""Adapters that ship with Podium: small changes to a base model, in GGUF files of the package.

`adapters/manifest.toml` says what each is, what it was trained by, and what its file must hold;
`embedded/NAME` is how a worker's `adapter`, or a conductor's `model`, calls it. Adapters of
one's own are named by their path, like any weights (`podium.local.sources`).
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Final

from podium.errors import ConfigError
from podium.files import sha256_of

PREFIX: Final = "embedded/"
DIRECTORY: Final = Path(__file__).parents[1] / "adapters"
MANIFEST: Final = "manifest.toml"
REMEDY: Final = "reinstall podium-conductor"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedAdapter:
    """One entry of the manifest, and where its file lies.

    `base` names the weights that it was trained over, `template` the form in which
    conversations were written then, and `trained_by` the command that makes it again.
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


def shipped_adapters() -> tuple[ShippedAdapter, ...]:
    """The adapters of the manifest, in its order."""
    document = tomllib.loads((DIRECTORY / MANIFEST).read_text("utf-8"))
    return tuple(
        ShippedAdapter(name=PREFIX + entry.pop("name"), path=DIRECTORY / entry.pop("file"), **entry)
        for entry in document.get("adapter", ())
    )


def shipped_adapter(name: str) -> ShippedAdapter:
    """The adapter called `embedded/NAME`."""
    known = {adapter.name: adapter for adapter in shipped_adapters()}
    if name in known:
        return known[name]
    close = get_close_matches(name, known, 1)
    there_are = f"there is {', '.join(known)}" if known else "none is shipped"
    hint = f"did you mean {close[0]}?" if close else f"{there_are};"
    raise ConfigError(
        f"Podium ships no adapter named {name!r}; {hint} one of your own is named "
        f"file:/path/to/adapter.gguf"
    )


@cache
def checked(adapter: ShippedAdapter) -> Path:
    """Where the adapter lies, once it is known to be the one that was shipped."""
    if not adapter.path.is_file():
        raise ConfigError(f"{adapter.name} is not at {adapter.path}; {REMEDY}")
    checksum = sha256_of(adapter.path)
    if checksum != adapter.sha256:
        raise ConfigError(
            f"{adapter.path} has the sha256 {checksum} and {adapter.sha256} was expected; {REMEDY}"
        )
    return adapter.path
