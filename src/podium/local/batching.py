"""Concurrent requests to one local model, completed in batches.

Whoever asks waits for a completion of their own; those who ask at about one time are completed
together, which `podium.local.gathering` sees to. What a completion is, is `podium.local.decoding`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from podium.local.gathering import GatheringModel, ModelName, in_batches, tell
from podium.local.sharing import Shared

if TYPE_CHECKING:
    from podium.local.decoding import Completion, Decoder, Sampling

MOST_TOKENS: Final = 600_000
"""Rows times their greatest length, where memory allows so many."""

PROCESSOR_BYTES: Final = 2 * 2**30
"""What the keys and values of a batch may take of a processor's memory; of a graphics card's,
they may take half of what is free once the model is loaded."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One prompt that waits for its completion; `adapter` is the directory of one."""

    prompt: Sequence[int]
    sampling: Sampling
    adapter: str | None
    future: asyncio.Future[Completion]

    @property
    def size(self) -> int:
        """The most tokens that it may come to."""
        return len(self.prompt) + self.sampling.max_tokens


class BatchingModel(GatheringModel[Asked]):
    """One model in memory, with any number of adapters, for everybody in this process. Safe to
    use from several event loops and threads."""

    def __init__(self, model: ModelName) -> None:
        super().__init__(model, _Completing)

    async def complete(
        self, prompt: Sequence[int], sampling: Sampling, adapter: str | None = None
    ) -> Completion:
        """Complete the prompt, together with whoever else asks at this time."""
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self.ask(Asked(prompt, sampling, adapter, future))
        return await future


class _Completing:
    """A loaded model and the adapters that were asked for so far."""

    def __init__(self, model: ModelName) -> None:
        from podium.local import pretrained
        from podium.local.captured import GROUPED_ATTENTION, can_be_captured
        from podium.local.decoding import Decoder

        self.pretrained = pretrained.load(
            model.name, dtype=pretrained.data_type(model.dtype), device=model.device
        )
        self._decoder: Decoder = Decoder(
            self.pretrained.model,
            end_tokens=self.pretrained.end_tokens,
            padding=self.pretrained.tokenizer.pad_token_id,
        )
        self._most_tokens = most_tokens(self.pretrained.model)
        self._captured = can_be_captured(self.pretrained.model)
        if self._captured:
            self.pretrained.model.config._attn_implementation = GROUPED_ATTENTION

    def answer(self, gathered: Sequence[Asked]) -> None:
        """Complete what was asked; a fault is told to those whose batch it was, and to no one
        else."""
        waiting = [asked for asked in gathered if not asked.future.cancelled()]
        able = [asked for asked in waiting if self._has_adapter(asked)]
        for batch in in_batches(able, self._most_tokens):
            try:
                tell(batch, self._completions(batch))
            except Exception as error:  # noqa: BLE001 - every fault goes to those who wait
                tell(batch, error)

    def _completions(self, batch: Sequence[Asked]) -> list[Completion]:
        adapters = self._decoder.adapters
        return self._decoder.complete(
            [asked.prompt for asked in batch],
            [asked.sampling for asked in batch],
            choices=[adapters.index(asked.adapter) for asked in batch] if adapters else None,
            captured=self._captured,
        )

    def _has_adapter(self, asked: Asked) -> bool:
        """Whether the adapter is on the model, and was laid on if need be. A model that nobody
        wants an adapter for need not be of a kind that takes one."""
        if asked.adapter is None:
            return True
        from podium.local.lora import EVERY_LINEAR_LAYER, AdapterStack

        try:
            if self._decoder.adapters is None:
                model = self.pretrained.model
                self._decoder.adapters = AdapterStack(
                    model, targets=EVERY_LINEAR_LAYER, dtype=model.dtype
                )
            if asked.adapter not in self._decoder.adapters.names:
                self._decoder.adapters.add(asked.adapter, Path(asked.adapter))
        except Exception as error:  # noqa: BLE001 - every fault goes to those who wait
            tell([asked], error)
            return False
        return True


def most_tokens(model: Any) -> int:
    """How many tokens' keys and values there is room for."""
    from podium.local.captured import bytes_a_token, room_beside

    is_on_a_card = model.device.type == "cuda"
    room = room_beside(model) // 2 if is_on_a_card else PROCESSOR_BYTES
    return min(MOST_TOKENS, room // bytes_a_token(model))


shared_batching_model: Final = Shared(BatchingModel)
"""The one model of this process that is named and loaded so."""
