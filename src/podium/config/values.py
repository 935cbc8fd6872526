"""What single keys of a file may hold, for every table that has such keys."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field

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


Count = Annotated[int, Field(gt=0)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Days = Seconds
Name = Annotated[str, Field(min_length=1, pattern=r"^\S(.*\S)?$")]
VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
PoolChanged = Literal["refuse", "narrow"]
"""What to do where the pool is another one than somebody was trained with. A worker is the same if
its name and its model are."""
