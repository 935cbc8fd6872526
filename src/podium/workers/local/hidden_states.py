"""Hidden states of a frozen local model; nothing is generated.

    reader = HiddenReader("smollm2-135m-instruct")
    state = await reader.read(text)

Concurrent texts form one batch. Readers may scale the singular values of some matrices
(`podium.workers.local.scaling`). Needs the extra `train`, which is imported with the first text.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

from podium.core.errors import ConfigError, StoreError, WorkerCrashed, install_command
from podium.core.pool import WorkerProfile
from podium.workers.local.batching import (
    ModelName,
    SharedBatchModel,
    SharedByKey,
    deliver,
    split_batches,
)

if TYPE_CHECKING:
    import numpy as np
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

PLACES: Final[dict[Token, int]] = {"penultimate": 2, "last": 1}
"""The token whose state is returned, counted from the end."""


class ReaderShape(NamedTuple):
    """The length of the hidden states, and the number of singular values of each matrix."""

    width: int
    ranks: tuple[int, ...]


class ScaledReader(Protocol):
    """A reader with scaled singular values."""

    profile: WorkerProfile

    async def read(self, text: str) -> Vector:
        """Return the hidden state of the chosen token."""
        ...

    async def load(self) -> None:
        """Load the model now."""
        ...


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
        """The number of tokens."""
        return len(self.tokens)


class HiddenStateModel(SharedBatchModel[TextRequest]):
    """One model in memory that reads for this process."""

    def __init__(self, model: ModelName) -> None:
        super().__init__(model, _LoadedReader)


class HiddenReader:
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
        self._position = PLACES[token]
        self._model = shared_hidden_state_model(ModelName(base, dtype, device))
        self._model.hold()
        self._closed = False

    async def read(self, text: str) -> Vector:
        """Return the chosen token's hidden state after the last layer."""
        return await self._read(text, None)

    async def load(self) -> None:
        """Load the model now."""
        try:
            await self._model.ready()
        except (ConfigError, StoreError, RuntimeError, OSError) as error:
            raise WorkerCrashed(f"{self.profile.name} cannot read: {error}") from error

    async def shape(self, matrices: Sequence[str] = ()) -> ReaderShape:
        """Return the sizes of the hidden state and of these matrices' singular values."""
        from podium.workers.local.scaling import matrix

        model = (await self._model.ready()).model
        ranks = tuple(min(matrix(model, name).shape) for name in matrices)
        return ReaderShape(model.config.hidden_size, ranks)

    def with_scales(self, matrices: Sequence[str], scales: Sequence[Vector]) -> ScaledReader:
        """Return a reader over the same model with scaled singular values."""
        return (
            _ScaledReader(self, SingularScaling(tuple(matrices), tuple(scales)))
            if matrices
            else self
        )

    async def close(self) -> None:
        """Release the model; it is unloaded when no reader uses it."""
        if not self._closed:
            self._closed = True
            await self._model.release()

    async def _read(self, text: str, scaling: SingularScaling | None) -> Vector:
        loaded = await self._model.ready()
        tokens = loaded.encode_text(text)
        if not tokens:
            raise ConfigError("there is nothing to read: the text is empty")
        longest = min(LONGEST_TEXT, loaded.context or LONGEST_TEXT)
        if len(tokens) > longest:
            tokens = tokens[: longest // 2] + tokens[-(longest // 2) :]
        future: asyncio.Future[Vector] = asyncio.get_running_loop().create_future()
        self._model.submit(TextRequest(tokens, min(self._position, len(tokens)), scaling, future))
        return await future


class _ScaledReader:
    """A reader that scales some matrices."""

    def __init__(self, reader: HiddenReader, scaling: SingularScaling) -> None:
        self.profile = reader.profile
        self.load = reader.load
        self._reader = reader
        self._scaling = scaling

    async def read(self, text: str) -> Vector:
        """Return the hidden state of the chosen token."""
        return await self._reader._read(text, self._scaling)


class _LoadedReader:
    """A loaded model and its current scales."""

    def __init__(self, model: ModelName) -> None:
        from podium.workers.local import pretrained
        from podium.workers.local.scaling import ModelScales

        self.pretrained = pretrained.load(
            model.name, dtype=pretrained.data_type(model.dtype), device=model.device
        )
        self._scales = ModelScales(self.pretrained.model)

    def answer(self, gathered: Sequence[TextRequest]) -> None:
        """Read the texts, grouped by scaling; an error fails only its own batch."""
        waiting = [text for text in gathered if not text.future.cancelled()]
        for scaling in dict.fromkeys(text.scaling for text in waiting):
            alike = [text for text in waiting if text.scaling is scaling]
            for batch in split_batches(alike, TOKENS_AT_ONCE):
                try:
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


shared_hidden_state_model: Final = SharedByKey(HiddenStateModel)
"""Return the one reading model of this process with that name and settings."""
