"""Hidden states of a frozen local model; nothing is generated.

    reader = HiddenStateReader("smollm2-135m-instruct")
    state = await reader.read(text)

Concurrent texts form one batch. A text may be read with scaled singular values of some matrices,
each of which keeps the sum of its own. Needs the extra `train`, which is imported with the first
text.
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

    from podium_lab.evolution.coordinator import Scales

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
    scales: Scales
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

    async def ranks(self, matrices: Sequence[str]) -> tuple[int, ...]:
        """Return the number of singular values of each matrix."""
        model = (await self._model.ready()).model
        return tuple(min(_matrix(model, name).shape) for name in matrices)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._model.release()

    async def read(self, text: str, scales: Scales = ()) -> Vector:
        loaded = await self._model.ready()
        tokens = loaded.encode_text(text)
        if not tokens:
            raise ConfigError("there is nothing to read: the text is empty")
        longest = min(LONGEST_TEXT, loaded.context or LONGEST_TEXT)
        if len(tokens) > longest:
            tokens = tokens[: longest // 2] + tokens[-(longest // 2) :]
        future: asyncio.Future[Vector] = asyncio.get_running_loop().create_future()
        position = min(self._position, len(tokens))
        self._model.submit(TextRequest(tokens, position, scales, future))
        return await future


class _LoadedReader:
    def __init__(self, model: ModelSpec) -> None:
        from podium.workers.local import pretrained

        self.pretrained = pretrained.load(
            model.name, dtype=pretrained.data_type(model.dtype), device=model.device
        )
        self._applied: Scales = ()
        self._decomposed: dict[str, tuple[Any, Any]] = {}

    def answer(self, gathered: Sequence[TextRequest], arrivals: Arrivals[TextRequest]) -> None:
        """Read the texts, grouped by their scales; an error fails only its own batch."""
        waiting = [text for text in gathered if not text.future.cancelled()]
        for scales in dict.fromkeys(text.scales for text in waiting):
            alike = [text for text in waiting if text.scales == scales]
            for batch in split_batches(alike, TOKENS_AT_ONCE):
                try:
                    self._apply(scales)
                    deliver(batch, self._states(batch))
                except Exception as error:  # noqa: BLE001 - every fault goes to those who wait
                    deliver(batch, error)

    def _apply(self, scales: Scales) -> None:
        """Scale these matrices of the model, and restore the others."""
        import torch

        if scales == self._applied:
            return
        model = self.pretrained.model
        changed = {name: self._decompose(name)[0] for name, _ in self._applied}
        changed |= {name: self._scale(name, growth) for name, growth in scales}
        with torch.no_grad():
            for name, values in changed.items():
                _matrix(model, name).copy_(values)
        self._applied = scales

    def _decompose(self, name: str) -> tuple[Any, Any]:
        """Return a copy of a matrix as it was loaded, and its U, s and V^T."""
        import torch

        if name not in self._decomposed:
            loaded = _matrix(self.pretrained.model, name).detach().clone()
            parts = torch.linalg.svd(loaded.float(), full_matrices=False)
            self._decomposed[name] = (loaded, parts)
        return self._decomposed[name]

    def _scale(self, name: str, growth: Sequence[float]) -> Any:
        """Return U diag(g s) V^T x sum(s) / sum(g s), where g = 1 + growth."""
        left, values, right = self._decompose(name)[1]
        if len(growth) != len(values):
            raise ConfigError(
                f"{name} has {len(values)} singular values, and there are {len(growth)} scales"
            )
        grown = values * (1 + values.new_tensor(growth))
        if not grown.sum() > 0:
            raise ConfigError("scales leave nothing of a matrix; they must be well above -1")
        return left * (grown * (values.sum() / grown.sum())) @ right

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


def _matrix(model: Any, name: str) -> Any:
    """Return the matrix of that name, as in `model.layers.0.mlp.up_proj.weight`."""
    matrices = {key: one for key, one in model.named_parameters() if one.dim() == 2}
    if name not in matrices:
        first, *_, last = matrices
        raise ConfigError(f"the model has no matrix {name!r}; it has {first}, … and {last}")
    return matrices[name]


def _reading_model(model: ModelSpec) -> SharedBatchModel[TextRequest]:
    return SharedBatchModel(model, _LoadedReader)


shared_hidden_state_model: Final = SharedByKey(_reading_model)
"""Return the one reading model of this process with that name and settings."""
