"""Text from a transformers model, many prompts at once.

Every prompt may choose its own adapter and its own temperature; prompts that are to be completed
several times are read once. Rows that have ended leave the batch, so that a few long ones do not
hold up the memory of all.

This is the arithmetic alone: gathering requests into batches is `podium.local.batching`, and what
a worker makes of it is `podium.providers.transformers`. Needs torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache

from podium.local.lora import AdapterStack


@dataclass(frozen=True, slots=True)
class Sampling:
    """How one prompt is completed; a temperature of 0 always takes the likeliest token."""

    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0


@dataclass(frozen=True, slots=True)
class Completion:
    """The tokens that were generated; `ended` says that the model ended them itself. The token
    that ends them is among them."""

    tokens: tuple[int, ...]
    ended: bool


class Decoder:
    """Completes prompts with one model. Not to be used by two threads at once."""

    def __init__(
        self,
        model: nn.Module,
        *,
        end_tokens: Sequence[int],
        padding: int,
        adapters: AdapterStack | None = None,
        seed: int = 0,
    ) -> None:
        self.model: Any = model
        self.adapters = adapters
        self._padding = padding
        self._device = next(model.parameters()).device
        self._ends = torch.tensor(list(end_tokens), device=self._device)
        self._generator = torch.Generator(self._device).manual_seed(seed)

    @torch.inference_mode()
    def complete(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sequence[Sampling],
        *,
        choices: Sequence[int] | None = None,
        copies: int = 1,
    ) -> list[Completion]:
        """One completion of every prompt, or `copies` of each, those of one prompt together."""
        rows = self._tensor(choices) if choices is not None else None
        tokens, mask = self._padded(prompts)
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        cache = DynamicCache(config=self.model.config)
        logits = self._forward(tokens, mask, positions, cache, rows)
        if copies > 1:
            cache.batch_repeat_interleave(copies)
            logits = logits.repeat_interleave(copies, 0)
            mask = mask.repeat_interleave(copies, 0)
            rows = rows.repeat_interleave(copies, 0) if rows is not None else None
            sampling = [one for one in sampling for _ in range(copies)]
        begun = _Begun(self, cache, mask, mask.sum(1), rows, list(sampling))
        return begun.go_on(logits)

    def _padded(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """The prompts side by side, padded on the left, and where they are no padding."""
        width = max(len(prompt) for prompt in prompts)
        tokens = [[self._padding] * (width - len(prompt)) + list(prompt) for prompt in prompts]
        mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        return self._tensor(tokens), self._tensor(mask)

    def _tensor(self, values: Sequence[Any]) -> Tensor:
        return torch.tensor(values, device=self._device)

    def _forward(
        self,
        tokens: Tensor,
        mask: Tensor,
        positions: Tensor,
        cache: DynamicCache,
        rows: Tensor | None,
    ) -> Tensor:
        """The logits after the last token of every row."""
        arguments = {
            "input_ids": tokens,
            "attention_mask": mask,
            "position_ids": positions,
            "past_key_values": cache,
            "use_cache": True,
            "logits_to_keep": 1,
        }
        if self.adapters is None:
            output = self.model(**arguments)
        else:
            with self.adapters.using(rows):
                output = self.model(**arguments)
        logits: Tensor = output.logits[:, -1]
        return logits

    def sample(self, logits: Tensor, temperature: Tensor, top_p: Tensor | None) -> Tensor:
        """The next token of every row."""
        likeliest = logits.argmax(-1)
        if not bool((temperature > 0).any()):
            return likeliest
        scaled = logits.float() / temperature.clamp(min=1e-6)[:, None]
        chances = scaled.softmax(-1)
        if top_p is not None:
            chances = _nucleus(chances, top_p)
        drawn = torch.multinomial(chances, 1, generator=self._generator)[:, 0]
        return torch.where(temperature > 0, drawn, likeliest)

    def is_end(self, tokens: Tensor) -> Tensor:
        """Which of the tokens end a completion."""
        return torch.isin(tokens, self._ends)


class _Begun:
    """A batch in mid-generation."""

    def __init__(
        self,
        decoder: Decoder,
        cache: DynamicCache,
        mask: Tensor,
        lengths: Tensor,
        rows: Tensor | None,
        sampling: list[Sampling],
    ) -> None:
        device = mask.device
        self._decoder = decoder
        self._cache = cache
        self._mask = mask
        self._positions = lengths
        self._rows = rows
        self._temperature = torch.tensor([one.temperature for one in sampling], device=device)
        self._limits = torch.tensor([one.max_tokens for one in sampling], device=device)
        top_p = [one.top_p for one in sampling]
        self._top_p = torch.tensor(top_p, device=device) if min(top_p) < 1.0 else None
        self._places = torch.arange(len(sampling), device=device)
        self._longest = max(one.max_tokens for one in sampling)

    def go_on(self, logits: Tensor) -> list[Completion]:
        """Token by token, until every row has ended."""
        total = len(self._places)
        written = torch.full((total, self._longest), -1, device=logits.device)
        ended = torch.zeros(total, dtype=torch.bool, device=logits.device)
        live = torch.ones(total, dtype=torch.bool, device=logits.device)
        for step in range(self._longest):
            tokens = self._decoder.sample(logits, self._temperature, self._top_p)
            written[self._places[live], step] = tokens[live]
            ends = self._decoder.is_end(tokens) & live
            ended[self._places[ends]] = True
            live = live & ~ends & (self._limits > step + 1)
            remaining = int(live.sum())
            if remaining == 0:
                break
            if remaining < len(live) // 2:
                tokens = self._keep(live, tokens)
                live = live[live]
            logits = self._step(tokens)
        return [
            Completion(tuple(token for token in row if token >= 0), has_ended)
            for row, has_ended in zip(written.tolist(), ended.tolist(), strict=True)
        ]

    def _step(self, tokens: Tensor) -> Tensor:
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(self._mask), 1)], 1)
        logits = self._decoder._forward(
            tokens[:, None], self._mask, self._positions[:, None], self._cache, self._rows
        )
        self._positions = self._positions + 1
        return logits

    def _keep(self, live: Tensor, tokens: Tensor) -> Tensor:
        """Go on with the live rows alone."""
        kept = live.nonzero()[:, 0]
        self._cache.batch_select_indices(kept)
        self._mask, self._positions = self._mask[kept], self._positions[kept]
        self._temperature, self._limits = self._temperature[kept], self._limits[kept]
        self._top_p = self._top_p[kept] if self._top_p is not None else None
        self._rows = self._rows[kept] if self._rows is not None else None
        self._places = self._places[kept]
        return tokens[kept]


def _nucleus(chances: Tensor, top_p: Tensor) -> Tensor:
    """The likeliest tokens of each row that together have the chance `top_p`, and no others."""
    ordered, order = chances.sort(-1, descending=True)
    is_beyond = ordered.cumsum(-1) - ordered >= top_p[:, None]
    return torch.zeros_like(chances).scatter_(-1, order, ordered.masked_fill(is_beyond, 0.0))
