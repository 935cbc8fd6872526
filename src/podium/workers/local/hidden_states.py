"""What a local model makes of a text: the hidden state of one of its tokens, nothing generated.

    reader = HiddenReader("smollm2-135m-instruct")
    state = await reader.read(text)

Texts that are read at about one time are one batch. The model is frozen; what can differ from
reader to reader is by how much the singular values of some matrices are scaled, which is
`podium.local.scaling`. Reading needs the extra `train`; nothing of it is imported before the first
text.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

from podium.core.errors import ConfigError, StoreError, WorkerCrashed, install_command
from podium.core.pool import WorkerProfile
from podium.workers.local.batching import GatheringModel, ModelName, Shared, in_batches, tell

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float32]

LONGEST_TEXT: Final = 2048
"""Tokens of a text that are read, or fewer where the model takes fewer: of a longer one the first
and the last half of them. A small model takes some 4 ms for each on a processor."""

TOKENS_AT_ONCE: Final = 32_768
"""Rows times their greatest length."""

PACKAGES: Final = ("torch", "transformers", "gguf", "numpy")
"""What reads, and comes with the extra `train`."""

Token = Literal["penultimate", "last"]

PLACES: Final[dict[Token, int]] = {"penultimate": 2, "last": 1}
"""The token whose state counts, from the end."""


class Shape(NamedTuple):
    """The length of a model's hidden states, and how many singular values its matrices have."""

    width: int
    ranks: tuple[int, ...]


class Scaled(Protocol):
    """A reader with singular values of its own."""

    profile: WorkerProfile

    async def read(self, text: str) -> Vector:
        """The hidden state of the token that counts."""
        ...

    async def load(self) -> None:
        """Load the model now."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Scaling:
    """By how much the singular values of each of some matrices grow: 0.1 is by a tenth. Known by
    itself, not by its numbers, so that telling two apart costs nothing."""

    matrices: tuple[str, ...]
    scales: tuple[Vector, ...]


@dataclass(frozen=True, slots=True)
class Text:
    """One text that waits for being read; `place` is the token that counts, from the end."""

    tokens: Sequence[int]
    place: int
    scaling: Scaling | None
    future: asyncio.Future[Vector]

    @property
    def size(self) -> int:
        """How many tokens it has."""
        return len(self.tokens)


class ReadingModel(GatheringModel[Text]):
    """One model in memory that reads for everybody in this process."""

    def __init__(self, model: ModelName) -> None:
        super().__init__(model, _Reading)


class HiddenReader:
    """Reads texts by the model of that name, which is loaded with the first. It has a profile for
    those who load models beforehand."""

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
        self._place = PLACES[token]
        self._model = shared_reading_model(ModelName(base, dtype, device))
        self._model.hold()
        self._closed = False

    async def read(self, text: str) -> Vector:
        """The hidden state of the token that counts, after the last layer, by the model as it
        is."""
        return await self._read(text, None)

    async def load(self) -> None:
        """Load the model now, so that the first text need not wait for it."""
        try:
            await self._model.ready()
        except (ConfigError, StoreError, RuntimeError, OSError) as error:
            raise WorkerCrashed(f"{self.profile.name} cannot read: {error}") from error

    async def shape(self, matrices: Sequence[str] = ()) -> Shape:
        """What there is to be learned over this model, with those of its matrices."""
        from podium.workers.local.scaling import matrix

        model = (await self._model.ready()).model
        ranks = tuple(min(matrix(model, name).shape) for name in matrices)
        return Shape(model.config.hidden_size, ranks)

    def with_scales(self, matrices: Sequence[str], scales: Sequence[Vector]) -> Scaled:
        """A reader over the same model, with the singular values of these matrices scaled."""
        return _ScaledReader(self, Scaling(tuple(matrices), tuple(scales))) if matrices else self

    async def close(self) -> None:
        """Give the model up; it is unloaded when nobody reads with it any more."""
        if not self._closed:
            self._closed = True
            await self._model.release()

    async def _read(self, text: str, scaling: Scaling | None) -> Vector:
        loaded = await self._model.ready()
        tokens = loaded.encode_text(text)
        if not tokens:
            raise ConfigError("there is nothing to read: the text is empty")
        longest = min(LONGEST_TEXT, loaded.context or LONGEST_TEXT)
        if len(tokens) > longest:
            tokens = tokens[: longest // 2] + tokens[-(longest // 2) :]
        future: asyncio.Future[Vector] = asyncio.get_running_loop().create_future()
        self._model.ask(Text(tokens, min(self._place, len(tokens)), scaling, future))
        return await future


class _ScaledReader:
    """Reads as another does, but with scales on some matrices."""

    def __init__(self, reader: HiddenReader, scaling: Scaling) -> None:
        self.profile = reader.profile
        self.load = reader.load
        self._reader = reader
        self._scaling = scaling

    async def read(self, text: str) -> Vector:
        """The hidden state of the token that counts."""
        return await self._reader._read(text, self._scaling)


class _Reading:
    """A loaded model, and the scales that are on it."""

    def __init__(self, model: ModelName) -> None:
        from podium.workers.local import pretrained
        from podium.workers.local.scaling import Scales

        self.pretrained = pretrained.load(
            model.name, dtype=pretrained.data_type(model.dtype), device=model.device
        )
        self._scales = Scales(self.pretrained.model)

    def answer(self, gathered: Sequence[Text]) -> None:
        """Read what was asked, all of one scaling together; a fault is told to those whose batch
        it was."""
        waiting = [text for text in gathered if not text.future.cancelled()]
        for scaling in dict.fromkeys(text.scaling for text in waiting):
            alike = [text for text in waiting if text.scaling is scaling]
            for batch in in_batches(alike, TOKENS_AT_ONCE):
                try:
                    self._scales.lay_on(scaling)
                    tell(batch, self._states(batch))
                except Exception as error:  # noqa: BLE001 - every fault goes to those who wait
                    tell(batch, error)

    def _states(self, batch: Sequence[Text]) -> list[Any]:
        """The states, one for each. What is behind a text cannot reach back into it, so that
        padding needs no mask."""
        import torch

        model = self.pretrained.model
        longest = max(text.size for text in batch)
        rows = [[*text.tokens, *[0] * (longest - text.size)] for text in batch]
        ends = [text.size - text.place for text in batch]
        with torch.inference_mode():
            read = model.base_model(torch.tensor(rows, device=model.device), use_cache=False)
            states = read.last_hidden_state[range(len(batch)), ends]
        return list(states.float().cpu().numpy())


shared_reading_model: Final = Shared(ReadingModel)
"""The one reading model of this process that is named and loaded so."""
