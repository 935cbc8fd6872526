"""Batched decoding with a transformers model.

Every prompt may have its own adapter and sampling parameters; a prompt with several completions is
read once. The cache either grows with every token and drops finished rows (`GrowingCache`), or has
its final size from the start (`podium.workers.local.captured`), which a GPU can replay as a CUDA
graph. Collecting requests into batches is `podium.workers.local.batching`. Needs torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache

from podium.workers.local.captured import CapturedSteps
from podium.workers.local.lora import AdapterStack


@dataclass(frozen=True, slots=True)
class Sampling:
    """The sampling parameters of one prompt.

    Temperature 0 is greedy; `top_k` 0 considers all tokens. With a `seed`, the result does not
    depend on the rest of the batch. Invalid values are refused here: in a batch they would harm
    every row.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens is {self.max_tokens}; give 1 or more")
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(f"temperature is {self.temperature}; give 0 or more")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}; give more than 0 and at most 1")
        if self.top_k < 0:
            raise ValueError(f"top_k is {self.top_k}; give 0 for all tokens, or how many")


@dataclass(frozen=True, slots=True)
class Completion:
    """The generated tokens, the end token included; `ended`: the model ended them itself."""

    tokens: tuple[int, ...]
    ended: bool


class BatchCache(Protocol):
    """The keys and values of a batch."""

    def step(self, tokens: Tensor) -> Tensor:
        """Append the next token of every row; return the logits after it."""

    def keep(self, rows: Tensor) -> bool:
        """Continue with these rows, if possible."""


class Decoder:
    """Completes prompts with one model. Not thread-safe.

    Draws follow from `seed`; with None from torch's own state, which training checkpoints keep.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        end_tokens: Sequence[int],
        padding: int,
        adapters: AdapterStack | None = None,
        seed: int | None = 0,
    ) -> None:
        self.model: Any = model
        self.adapters = adapters
        self._padding = padding
        self.device = next(model.parameters()).device
        self._ends = torch.tensor(list(end_tokens), dtype=torch.long, device=self.device)
        self._generator = None if seed is None else torch.Generator(self.device).manual_seed(seed)
        self._captured = CapturedSteps(model)

    @torch.inference_mode()
    def complete(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sequence[Sampling],
        *,
        choices: Sequence[int] | None = None,
        copies: int = 1,
        captured: bool = False,
    ) -> list[Completion]:
        """Return `copies` completions of every prompt, those of one prompt together.

        `captured` is for batch sizes that recur.
        """
        if choices is not None:
            if self.adapters is None:
                raise ValueError("only a decoder with adapters can choose them")
            count = len(self.adapters.names)
            if not all(0 <= choice <= count for choice in choices):
                raise ValueError(
                    f"{max(choices)} is not an adapter index; there are {count} adapters"
                )
        if not all(prompts):
            raise ValueError("a prompt has no tokens; there is nothing to complete")
        if not prompts:
            return []
        longest = max(one.max_tokens for one in sampling)
        if captured and not self._captured.has_room_for(prompts, copies, longest):
            if self._captured.has_room_for([max(prompts, key=len)], copies, longest):
                return self._complete_in_halves(prompts, sampling, choices, copies)
            captured = False
        width = self._captured.width_for(prompts) if captured else max(map(len, prompts))
        rows = self._tensor(choices) if choices is not None else None
        tokens, mask = self._pad(prompts, width)
        cache = DynamicCache(config=self.model.config)
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        logits = forward(self, tokens, mask, positions, cache, rows)
        every = torch.arange(len(prompts), device=self.device).repeat_interleave(copies)
        samplings = [_for_copy(one, copy) for one in sampling for copy in range(copies)]
        memory: BatchCache
        if captured:
            memory = self._captured.batch(cache, mask, every, longest, self.adapters, rows)
        else:
            memory = GrowingCache(self, cache, mask, rows, every)
        return _Generation(self, memory, samplings).run_to_end(logits[every])

    def _complete_in_halves(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sequence[Sampling],
        choices: Sequence[int] | None,
        copies: int,
    ) -> list[Completion]:
        """Complete a batch that does not fit into memory by halves, recursively.

        Captured steps are faster by more than the number of halves.
        """
        middle = len(prompts) // 2
        return [
            completion
            for half in (slice(None, middle), slice(middle, None))
            for completion in self.complete(
                prompts[half],
                sampling[half],
                choices=choices[half] if choices is not None else None,
                copies=copies,
                captured=True,
            )
        ]

    def sample(self, logits: Tensor, sampling: _SamplingTensors, step: int) -> Tensor:
        likeliest = logits.argmax(-1)
        if sampling.greedy:
            return likeliest
        scaled = logits.float() / sampling.temperature.clamp(min=1e-6)[:, None]
        if sampling.top_k is not None:
            scaled = _keep_top_k(scaled, sampling.top_k, sampling.greatest_top_k)
        chances = scaled.softmax(-1)
        if sampling.top_p is not None:
            chances = _keep_top_p(chances, sampling.top_p)
        drawn = torch.multinomial(chances, 1, generator=self._generator)[:, 0]
        if sampling.seeded_draws is not None:
            seeded_draws = sampling.seeded_draws[:, step]
            drawn = torch.where(seeded_draws >= 0, _token_at(chances, seeded_draws), drawn)
        return torch.where(sampling.temperature > 0, drawn, likeliest)

    def is_end(self, tokens: Tensor) -> Tensor:
        return torch.isin(tokens, self._ends)

    def _pad(self, prompts: Sequence[Sequence[int]], width: int) -> tuple[Tensor, Tensor]:
        """Return the prompts padded on the left, and their mask."""
        tokens = [[self._padding] * (width - len(prompt)) + list(prompt) for prompt in prompts]
        mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        return self._tensor(tokens), self._tensor(mask)

    def _tensor(self, values: Sequence[Any]) -> Tensor:
        return torch.tensor(values, device=self.device)


def forward(
    decoder: Decoder,
    tokens: Tensor,
    mask: Tensor,
    positions: Tensor,
    cache: DynamicCache,
    rows: Tensor | None,
) -> Tensor:
    """Return the logits after the last token of every row."""
    arguments = {
        "input_ids": tokens,
        "attention_mask": mask,
        "position_ids": positions,
        "past_key_values": cache,
        "use_cache": True,
        "logits_to_keep": 1,
    }
    if decoder.adapters is None:
        output = decoder.model(**arguments)
    else:
        with decoder.adapters.using(rows):
            output = decoder.model(**arguments)
    logits: Tensor = output.logits[:, -1]
    return logits


class GrowingCache:
    """Keys and values that grow by one token per step."""

    def __init__(
        self,
        decoder: Decoder,
        cache: DynamicCache,
        mask: Tensor,
        rows: Tensor | None,
        every: Tensor,
    ) -> None:
        self._decoder = decoder
        self._cache = cache
        self._mask = mask
        self._positions = mask.sum(1)
        self._rows = rows
        if len(every) != len(mask):
            self.keep(every)

    def step(self, tokens: Tensor) -> Tensor:
        """Append the next token of every row; return the logits after it."""
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(self._mask), 1)], 1)
        logits = forward(
            self._decoder,
            tokens[:, None],
            self._mask,
            self._positions[:, None],
            self._cache,
            self._rows,
        )
        self._positions = self._positions + 1
        return logits

    def keep(self, rows: Tensor) -> bool:
        """Continue with these rows; a row may be repeated."""
        self._cache.batch_select_indices(rows)
        self._mask, self._positions = self._mask[rows], self._positions[rows]
        self._rows = self._rows[rows] if self._rows is not None else None
        return True


class _SamplingTensors:
    """The sampling parameters of all rows as tensors; None if no row needs one."""

    def __init__(self, sampling: Sequence[Sampling], device: torch.device) -> None:
        top_p = [one.top_p for one in sampling]
        top_k = [one.top_k for one in sampling]
        self.temperature = torch.tensor([one.temperature for one in sampling], device=device)
        self.top_p = torch.tensor(top_p, device=device) if min(top_p) < 1.0 else None
        self.top_k = torch.tensor(top_k, device=device) if max(top_k) > 0 else None
        self.greatest_top_k = max(top_k)
        self.seeded_draws = _draw_seeded(sampling, device)
        self.greedy = all(one.temperature == 0.0 for one in sampling)

    def keep(self, rows: Tensor) -> None:
        self.temperature = self.temperature[rows]
        self.top_p = self.top_p[rows] if self.top_p is not None else None
        self.top_k = self.top_k[rows] if self.top_k is not None else None
        self.seeded_draws = self.seeded_draws[rows] if self.seeded_draws is not None else None


class _Generation:
    def __init__(self, decoder: Decoder, memory: BatchCache, sampling: Sequence[Sampling]) -> None:
        device = decoder.device
        self._decoder = decoder
        self._memory = memory
        self._chances = _SamplingTensors(sampling, device)
        self._limits = torch.tensor([one.max_tokens for one in sampling], device=device)
        self._longest = max(one.max_tokens for one in sampling)
        self._rows = torch.arange(len(sampling), device=device)

    def run_to_end(self, logits: Tensor) -> list[Completion]:
        total = len(self._rows)
        written = torch.full((total, self._longest), -1, device=logits.device)
        ended = torch.zeros(total, dtype=torch.bool, device=logits.device)
        live = torch.ones(total, dtype=torch.bool, device=logits.device)
        for step in range(self._longest):
            tokens = self._decoder.sample(logits, self._chances, step)
            written[self._rows[live], step] = tokens[live]
            ends = self._decoder.is_end(tokens) & live
            ended[self._rows[ends]] = True
            live = live & ~ends & (self._limits > step + 1)
            remaining = int(live.sum())
            if remaining == 0:
                break
            if remaining < len(live) // 2:
                kept = live.nonzero()[:, 0]
                if self._memory.keep(kept):
                    self._chances.keep(kept)
                    tokens, self._rows = tokens[kept], self._rows[kept]
                    self._limits, live = self._limits[kept], live[kept]
            logits = self._memory.step(tokens)
        return [
            Completion(tuple(token for token in row if token >= 0), has_ended)
            for row, has_ended in zip(written.tolist(), ended.tolist(), strict=True)
        ]


def _keep_top_k(scaled: Tensor, top_k: Tensor, greatest: int) -> Tensor:
    """Keep each row's `top_k` likeliest tokens and ties with the last of them."""
    most = min(greatest, scaled.shape[1])
    last = (top_k.clamp(max=most) - 1).clamp(min=0)
    least = scaled.topk(most).values.gather(1, last[:, None])
    return scaled.masked_fill((scaled < least) & (top_k > 0)[:, None], -torch.inf)


def _keep_top_p(chances: Tensor, top_p: Tensor) -> Tensor:
    """Keep each row's likeliest tokens with total probability `top_p`."""
    ordered, order = chances.sort(-1, descending=True)
    is_beyond = ordered.cumsum(-1) - ordered >= top_p[:, None]
    return torch.zeros_like(chances).scatter_(-1, order, ordered.masked_fill(is_beyond, 0.0))


def _for_copy(sampling: Sampling, copy: int) -> Sampling:
    """Return the sampling of one copy; a seed becomes a different one per copy."""
    return sampling if sampling.seed is None else replace(sampling, seed=sampling.seed + copy)


def _draw_seeded(sampling: Sequence[Sampling], device: torch.device) -> Tensor | None:
    """Draw a number from 0 to 1 per step for rows with a seed, else -1.

    Drawn on the CPU, so that it is the same on every machine.
    """
    if all(one.seed is None for one in sampling):
        return None
    seeded_draws = torch.full((len(sampling), max(one.max_tokens for one in sampling)), -1.0)
    for row, one in zip(seeded_draws, sampling, strict=True):
        if one.seed is not None:
            generator = torch.Generator().manual_seed(one.seed % 2**63)
            row[: one.max_tokens] = torch.rand(one.max_tokens, generator=generator)
    return seeded_draws.to(device)


def _token_at(chances: Tensor, seeded_draws: Tensor) -> Tensor:
    cumulative = chances.cumsum(-1)
    return (
        (cumulative <= seeded_draws[:, None] * cumulative[:, -1:])
        .sum(-1)
        .clamp(max=chances.shape[1] - 1)
    )
