"""Several LoRA adapters over one model, each row of a batch with its own.

Every linear layer holds the stacked matrices of all adapters, and each row of a batch selects one
or none. So a pool of specialists is one set of weights and one forward pass, and independent
adapters train side by side. Adapters are read and written in peft's format. Needs torch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as serialised
from torch import Tensor, nn

from podium._util.files import explain_write_errors, replace_directory
from podium.core.errors import ConfigError
from podium.workers.local.sources import CONFIG_FILE, WEIGHTS_FILE, read_config

NO_ADAPTER: Final = 0
"""The index of a row that uses the base model."""

PREFIX: Final = "base_model.model."
DOWN: Final = "lora_A.weight"
UP: Final = "lora_B.weight"
EVERY_LINEAR_LAYER: Final = (
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "gate_proj",
    "up_proj",
    "down_proj",
)


@dataclass(frozen=True, slots=True)
class LoraShape:
    """The rank, alpha and target layers of an adapter."""

    rank: int = 8
    alpha: float = 16.0
    targets: tuple[str, ...] = EVERY_LINEAR_LAYER

    @property
    def scale(self) -> float:
        """The factor of the product of the two matrices, alpha / rank."""
        return self.alpha / self.rank


EQUAL_PARTS: Final = "equal parts"
"""Selects a batch with as many rows for each adapter, in their order."""

Rows = Tensor | Literal["equal parts"]
"""The index of each row's adapter, or equal parts."""


class _RowAdapters:
    """The adapter of each row of the current batch, shared by all layers of a model.

    `others` has a row for each row of the batch and a column for each adapter; it is True where
    the row does not use the adapter.
    """

    others: Tensor | Literal["equal parts"] | None = None


class StackedLinear(nn.Module):
    """A linear layer with stacked adapters; the first is empty."""

    def __init__(
        self,
        base: nn.Linear,
        adapters: int,
        rank: int,
        row_adapters: _RowAdapters,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        self.base = base
        self._dtype = dtype
        self.down = nn.Parameter(self._zeros(adapters + 1, rank, base.in_features))
        self.up = nn.Parameter(self._zeros(adapters + 1, base.out_features, rank))
        self._row_adapters = row_adapters

    @property
    def size(self) -> tuple[int, int]:
        return self.base.in_features, self.base.out_features

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(shape, device=self.base.weight.device, dtype=self._dtype)

    def add(self, down: Tensor | None, up: Tensor | None) -> None:
        """Add an adapter; a smaller rank, or none, is padded with zeros."""
        rank = max(self.down.shape[1], down.shape[0] if down is not None else 0)
        count = self.down.shape[0]
        stacked = self._zeros(count + 1, rank, self.base.in_features)
        raised = self._zeros(count + 1, self.base.out_features, rank)
        with torch.no_grad():
            stacked[:count, : self.down.shape[1]] = self.down
            raised[:count, :, : self.up.shape[2]] = self.up
            if down is not None and up is not None:
                stacked[count, : down.shape[0]] = down
                raised[count, :, : up.shape[1]] = up
        self.down = nn.Parameter(stacked)
        self.up = nn.Parameter(raised)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the layer's output plus what each row's adapter adds.

        If rows differ, all adapters are computed and others' masked: for such small matrices that
        is faster than gathering per row.
        """
        output: Tensor = self.base(inputs)
        others = self._row_adapters.others
        if others is None:
            return output
        down, up = self.down.to(inputs.dtype), self.up.to(inputs.dtype)
        if isinstance(others, Tensor):
            projected = nn.functional.linear(inputs, down.flatten(0, 1))
            kept = projected.view(*inputs.shape[:-1], *down.shape[:2])
            kept = kept.masked_fill(others[:, None, :, None], 0.0)
            return output + nn.functional.linear(kept.flatten(-2), up.transpose(0, 1).flatten(1))
        parts = inputs.reshape(len(down) - 1, -1, inputs.shape[-1])
        return output + torch.bmm(torch.bmm(parts, down[1:].mT), up[1:].mT).view_as(output)


class AdapterStack:
    """The adapters of a model, by name."""

    def __init__(
        self,
        model: nn.Module,
        names: Sequence[str] = (),
        *,
        rank: int = 1,
        targets: Sequence[str],
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Insert the stack into the model, all zero.

        Training needs a full `dtype`; inference the model's.
        """
        self.names = tuple(names)
        self._row_adapters = _RowAdapters()
        self.layers: dict[str, StackedLinear] = {}
        for path, layer in list(model.named_modules()):
            if isinstance(layer, nn.Linear) and path.rpartition(".")[2] in targets:
                stacked = StackedLinear(layer, len(names), rank, self._row_adapters, dtype)
                parent, _, attribute = path.rpartition(".")
                setattr(model.get_submodule(parent), attribute, stacked)
                self.layers[path] = stacked
        if not self.layers:
            raise ConfigError(f"the model has no linear layer called {', '.join(targets)}")

    @classmethod
    def fresh(cls, model: nn.Module, names: Sequence[str], shape: LoraShape) -> AdapterStack:
        """Add trainable adapters that change nothing yet."""
        stack = cls(model, names, rank=shape.rank, targets=shape.targets)
        for layer in stack.layers.values():
            nn.init.kaiming_uniform_(layer.down[1:].flatten(0, 1), a=math.sqrt(5))
        return stack

    def add(self, name: str, directory: Path) -> None:
        """Load an adapter from its directory; one that does not fit leaves the stack unchanged."""
        pairs = _read(directory)
        for path, pair in pairs.items():
            self._check(path, pair, directory)
        for path, layer in self.layers.items():
            layer.add(*pairs.get(path, (None, None)))
        self.names = (*self.names, name)

    def _check(self, path: str, pair: tuple[Tensor, Tensor], directory: Path) -> None:
        layer = self.layers.get(path)
        if layer is None:
            raise ConfigError(
                f"{directory} changes {path}, which is none of the layers that adapters may "
                f"change here; was it trained over another base?"
            )
        down, up = pair
        found, wanted = (down.shape[1], up.shape[0]), layer.size
        if found != wanted:
            raise ConfigError(
                f"{directory} was trained over another base: for {path} it has {found[0]} "
                f"inputs and {found[1]} outputs, and this model has {wanted[0]} and {wanted[1]}"
            )
        if not (down.isfinite().all() and up.isfinite().all()):
            raise ConfigError(
                f"{directory} has non-finite values for {path}, which would spread to all other "
                f"adapters; train it again"
            )

    def index(self, name: str | None) -> int:
        if name is None:
            return NO_ADAPTER
        if name not in self.names:
            raise ConfigError(f"adapter not found: {name!r}; add it first")
        return self.names.index(name) + 1

    @contextmanager
    def using(self, rows: Rows | None) -> Iterator[None]:
        others = rows
        if isinstance(rows, Tensor):
            others = rows[:, None] != torch.arange(len(self.names) + 1, device=rows.device)
        before, self._row_adapters.others = self._row_adapters.others, others
        try:
            yield
        finally:
            self._row_adapters.others = before

    def parameters(self) -> list[nn.Parameter]:
        return [matrix for layer in self.layers.values() for matrix in (layer.down, layer.up)]

    def save(self, name: str, directory: Path, shape: LoraShape, base: str) -> None:
        """Write one adapter in peft's format; its own `shape` may be smaller than the stack's."""
        number = self.index(name)
        tensors = {}
        for path, layer in self.layers.items():
            if path.rpartition(".")[2] in shape.targets:
                down = layer.down[number, : shape.rank].detach()
                up = layer.up[number, :, : shape.rank].detach() / shape.scale
                tensors[f"{PREFIX}{path}.{DOWN}"] = down.half().cpu()
                tensors[f"{PREFIX}{path}.{UP}"] = up.half().cpu()
        write_adapter(directory, tensors, shape, base)


def write_adapter(
    directory: Path, tensors: Mapping[str, Tensor], shape: LoraShape, base: str
) -> None:
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": shape.rank,
        "lora_alpha": shape.alpha,
        "target_modules": list(shape.targets),
        "bias": "none",
        "lora_dropout": 0.0,
        "inference_mode": True,
    }
    weights = serialised({name: tensor.contiguous() for name, tensor in tensors.items()})
    with (
        explain_write_errors(directory.parent, len(weights)),
        replace_directory(directory) as draft,
    ):
        (draft / WEIGHTS_FILE).write_bytes(weights)
        (draft / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", "utf-8")


def _read(directory: Path) -> dict[str, tuple[Tensor, Tensor]]:
    """Read an adapter's two matrices per layer, the second one scaled."""
    config = read_config(directory)
    if config.raw.get("alpha_pattern"):
        raise ConfigError(
            f"{config.path} has an alpha_pattern; train all layers with one lora_alpha"
        )
    tensors = _tensors(directory)
    paths = {name.removeprefix(PREFIX).rpartition(".lora_")[0]: None for name in tensors}
    pairs = {}
    for path in paths:
        both = f"{PREFIX}{path}.{DOWN}", f"{PREFIX}{path}.{UP}"
        if all(name in tensors for name in both):
            down, up = (tensors.pop(name).float() for name in both)
            pairs[path] = down, up * config.scale(down.shape[0])
    if tensors or not pairs:
        odd = f"holds {next(iter(tensors))}" if tensors else "is empty"
        raise ConfigError(
            f"{directory / WEIGHTS_FILE} {odd}; expected a matrix lora_A and one lora_B for "
            f"each layer, and nothing else: train without biases, embeddings and DoRA"
        )
    return pairs


def _tensors(directory: Path) -> dict[str, Tensor]:
    path = directory / WEIGHTS_FILE
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except FileNotFoundError as error:
        raise ConfigError(
            f"{directory} is no adapter: {path} is missing; save the adapter again"
        ) from error
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{path} cannot be read: {error}; save the adapter again") from error
    return tensors
