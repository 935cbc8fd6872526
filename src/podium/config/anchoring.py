"""Paths that a file names are counted from the directory it lies in; so are files of weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

WEIGHTS_PROVIDER: Final = "llamacpp"
"""The provider of the weights that Podium ships and keeps."""

BATCHING_PROVIDER: Final = "transformers"
"""The provider whose models may be directories, as their adapters are."""


def anchored(path: str, directory: Path) -> str:
    """The path, counted from that directory."""
    return str(directory / Path(path).expanduser())


def anchored_weights(name: str, directory: Path) -> str:
    """Weights by their name, which may be that of a file; `podium.local.sources` has the forms."""
    if name.startswith("hf:") or (not name.startswith("file:") and not name.endswith(".gguf")):
        return name
    return f"file:{anchored(name.removeprefix('file:'), directory)}"


def anchored_options(options: dict[str, Any], provider: str, directory: Path) -> dict[str, Any]:
    """A worker's options with its adapter counted from that directory."""
    adapter = options.get("adapter")
    if not isinstance(adapter, str):
        return options
    if provider == BATCHING_PROVIDER:
        return {**options, "adapter": anchored(adapter.removeprefix("file:"), directory)}
    return {**options, "adapter": anchored_weights(adapter, directory)}
