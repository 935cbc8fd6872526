"""Hidden states of a frozen local model; nothing is generated.

    reader = HiddenStateReader("smollm2-135m-instruct")
    state = await reader.read(text)

Concurrent texts form one batch. Readers may scale the singular values of some matrices, keeping
each matrix's total strength. Needs the extra `train`, which is imported with the first text.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from podium.core.errors import ConfigError, StoreError, WorkerCrashed, install_command
from podium.core.pool import WorkerProfile
from podium.workers.local.batching import (
    Arrivals,
    ModelSpec,
    SharedBatchModel,
    SharedByKey,
    deliver,
    split_batches,
)

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    Vector = NDArray[np.float32]

LONGEST_TEXT: Final = 2048
"""Tokens that are read of a text; of a longer one, the first and the last half.

A small model takes about 4 ms per token on a CPU.
"""

TOKENS_AT_ONCE: Final = 32_768
"""Rows times their greatest length."""

PACKAGES: Final = ("torch", "transformers", "gguf", "numpy")
"""Packages of the extra `train` that read."""

Token = Literal["penultimate", "last"]

TOKEN_OFFSETS: Final[dict[Token, int]] = {"penultimate": 2, "last": 1}
"""The token whose state is returned, counted from the end."""


class ReaderShape(NamedTuple):
    """The length of the hidden states, and the number of singular values of each matrix."""

    width: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class SingularScaling:
    """The relative change of each matrix's singular values: 0.1 adds a tenth.

    Compared by identity, which costs nothing.
    """

    matrices: tuple[str, ...]
    scales: tuple[Vector, ...]


@dataclass(frozen=True, slots=True)
class TextRequest:
    """A text that waits to be read; `place` is the token, counted from the end."""

    tokens: Sequence[int]
    position: int
    scaling: SingularScaling | None
    future: asyncio.Future[Vector]

    @property
    def size(self) -> int:
        return len(self.tokens)


class HiddenStateReader:
    """Reads texts with a model, which is loaded with the first.

    It has a profile so that it can be loaded ahead like a worker.
    """

    def __init__(
        self,
        base: str,
        *,
        token: Token = "penultimate",  # noqa: S107 - of a text
        dtype: str = "float32",
        device: str = "",
    ) -> None:
        for package in PACKAGES:
            if importlib.util.find_spec(package) is None:
                raise ConfigError(
                    f"reading with {base} needs {package}; {install_command('train')}"
                )
        self.profile = WorkerProfile(name=base, provider="transformers", model=base)
        self._position = TOKEN_OFFSETS[token]
        self._model = shared_hidden_state_model(ModelSpec(base, dtype, device))
        self._model.acquire()
        self._scaling: SingularScaling | None = None
        self._closed = False

    async def load(self) -> None:
        try:
            await self._model.ready()
        except (ConfigError, StoreError, RuntimeError, OSError) as error:
            raise WorkerCrashed(f"{self.profile.name} cannot read: {error}") from error

    async def shape(self, matrices: Sequence[str] = ()) -> ReaderShape:
        """Return the sizes of the hidden state and of these matrices' singular values."""
        model = (await self._model.ready()).model
        ranks = tuple(min(matrix(model, name).shape) for name in matrices)
        return ReaderShape(model.config.hidden_size, ranks)

    def with_scales(self, matrices: Sequence[str], scales: Sequence[Vector]) -> HiddenStateReader:
        """Return a reader over the same model with scaled singular values; close only this one."""
        if not matrices:
            return self
        scaled = copy(self)
        scaled._scaling = SingularScaling(tuple(matrices), tuple(scales))
        return scaled

    async def close(self) -> None:
        """Release the model; it is unloaded when no reader uses it."""
        if not self._closed:
            self._closed = True
            await self._model.release()

    async def read(self, text: str) -> Vector:
        loaded = await self._model.ready()
        tokens = loaded.encode_text(text)
        if not tokens:
            raise ConfigError("there is nothing to read: the text is empty")
        longest = min(LONGEST_TEXT, loaded.context or LONGEST_TEXT)
        if len(tokens) > longest:
            tokens = tokens[: longest // 2] + tokens[-(longest // 2) :]
        future: asyncio.Future[Vector] = asyncio.get_running_loop().create_future()
        position = min(self._position, len(tokens))
        self._model.submit(TextRequest(tokens, position, self._scaling, future))
        return await future


class _LoadedReader:
    def __init__(self, model: ModelSpec) -> None:
        from podium.workers.local import pretrained

        self.pretrained = pretrained.load(
            model.name, dtype=pretrained.data_type(model.dtype), device=model.device
        )
        self._scales = ModelScales(self.pretrained.model)

    def answer(self, gathered: Sequence[TextRequest], arrivals: Arrivals[TextRequest]) -> None:
        """Read the texts, grouped by scaling; an error fails only its own batch."""
        import torch

        waiting = [text for text in gathered if not text.future.cancelled()]
        for scaling in dict.fromkeys(text.scaling for text in waiting):
            alike = [text for text in waiting if text.scaling is scaling]
            for batch in split_batches(alike, TOKENS_AT_ONCE):
                try:
                    with torch.no_grad():
                        self._scales.apply_scales(scaling)
                    deliver(batch, self._states(batch))
                except Exception as error:  # noqa: BLE001 - every fault goes to those who wait
                    deliver(batch, error)

    def _states(self, batch: Sequence[TextRequest]) -> list[Any]:
        """Return one state per text.

        Attention is causal, so padding on the right needs no mask.
        """
        import torch

        model = self.pretrained.model
        longest = max(text.size for text in batch)
        rows = [[*text.tokens, *[0] * (longest - text.size)] for text in batch]
        ends = [text.size - text.position for text in batch]
        with torch.inference_mode():
            read = model.base_model(torch.tensor(rows, device=model.device), use_cache=False)
            states = read.last_hidden_state[range(len(batch)), ends]
        return list(states.float().cpu().numpy())


class SingularParts(NamedTuple):
    """A matrix W and its singular value decomposition U diag(s) V^T."""

    whole: torch.Tensor
    left: torch.Tensor
    values: torch.Tensor
    right: torch.Tensor

    def scale(self, growth: torch.Tensor) -> torch.Tensor:
        """Return U diag((1 + growth) s) V^T x sum(s) / sum((1 + growth) s)."""
        values = (1 + growth) * self.values
        if not values.sum() > 0:
            raise ConfigError("scales leave nothing of a matrix; they must be well above -1")
        energy = self.values.sum() / values.sum()
        return (self.left * (values * energy)) @ self.right


class ModelScales:
    """The scales applied to one model."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._parts: dict[str, SingularParts] = {}
        self._applied: SingularScaling | None = None

    def apply_scales(self, scaling: SingularScaling | None) -> None:
        """Scale these matrices only; None restores the model. Call it without gradients."""
        if scaling is self._applied:
            return
        for name in self._applied.matrices if self._applied is not None else ():
            matrix(self._model, name).copy_(self._parts[name].whole)
        self._applied = None
        if scaling is None:
            return
        pairs = zip(scaling.matrices, scaling.scales, strict=True)
        for name, changed in [(name, self._scale_matrix(name, scale)) for name, scale in pairs]:
            matrix(self._model, name).copy_(changed)
        self._applied = scaling

    def _decompose(self, name: str) -> SingularParts:
        if name not in self._parts:
            import torch

            whole = matrix(self._model, name).detach().clone()
            self._parts[name] = SingularParts(
                whole, *torch.linalg.svd(whole.float(), full_matrices=False)
            )
        return self._parts[name]

    def _scale_matrix(self, name: str, scale: Any) -> torch.Tensor:
        import torch

        parts = self._decompose(name)
        values = parts.values
        growth = torch.as_tensor(scale, dtype=values.dtype, device=values.device)
        if growth.shape != values.shape:
            raise ConfigError(
                f"{name} has {len(values)} singular values, and there are {growth.numel()} scales"
            )
        return parts.scale(growth)


def matrix(model: Any, name: str) -> Any:
    """Return the matrix of that name, as in `model.layers.0.mlp.up_proj.weight`."""
    try:
        found = model.get_parameter(name)
    except AttributeError:
        found = None
    if found is None or found.dim() != 2:
        some = [key for key, parameter in model.named_parameters() if parameter.dim() == 2]
        raise ConfigError(
            f"the model has no matrix {name!r}; it has {', '.join(some[:3])}, … and {some[-1]}"
        )
    return found


def _reading_model(model: ModelSpec) -> SharedBatchModel[TextRequest]:
    return SharedBatchModel(model, _LoadedReader)


shared_hidden_state_model: Final = SharedByKey(_reading_model)
"""Return the one reading model of this process with that name and settings."""
