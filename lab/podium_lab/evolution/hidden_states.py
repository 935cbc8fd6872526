"""Hidden states of a frozen local model; nothing is generated.

    reader = HiddenStateReader("smollm2-135m-instruct")
    state = await reader.read(text)

Concurrent texts form one batch. Needs the extra `train`, which is imported with the first text.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from podium.conductors.evolved_turns import HiddenStateToken
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

TOKEN_OFFSETS: Final[dict[HiddenStateToken, int]] = {"penultimate": 2, "last": 1}
"""The token whose state is returned, counted from the end."""


@dataclass(frozen=True, slots=True)
class TextRequest:
    """A text that waits to be read; `place` is the token, counted from the end."""

    tokens: Sequence[int]
    position: int
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
        token: HiddenStateToken = "penultimate",  # noqa: S107 - of a text
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
        self._closed = False

    async def load(self) -> None:
        try:
            await self._model.ready()
        except (ConfigError, StoreError, RuntimeError, OSError) as error:
            raise WorkerCrashed(f"{self.profile.name} cannot read: {error}") from error

    async def width(self) -> int:
        return int((await self._model.ready()).model.config.hidden_size)

    async def close(self) -> None:
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
        self._model.submit(TextRequest(tokens, position, future))
        return await future


class _LoadedReader:
    def __init__(self, model: ModelSpec) -> None:
        from podium.workers.local import pretrained

        self.pretrained = pretrained.load(
            model.name, dtype=pretrained.data_type(model.dtype), device=model.device
        )

    def answer(self, gathered: Sequence[TextRequest], arrivals: Arrivals[TextRequest]) -> None:
        """Read the texts; an error fails only its own batch."""
        waiting = [text for text in gathered if not text.future.cancelled()]
        for batch in split_batches(waiting, TOKENS_AT_ONCE):
            try:
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


def _reading_model(model: ModelSpec) -> SharedBatchModel[TextRequest]:
    return SharedBatchModel(model, _LoadedReader)


shared_hidden_state_model: Final = SharedByKey(_reading_model)
"""Return the one reading model of this process with that name and settings."""
