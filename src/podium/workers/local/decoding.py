"""Batched decoding with a transformers model.

Every prompt may have its own adapter and sampling parameters; a prompt with several completions is
read once. A batch either grows with every token and drops finished rows (`GrowingCache`), or has
rows of fixed size (`podium.workers.local.captured`), whose step a GPU replays as a CUDA graph: a
row that is done takes the next prompt, also one that arrived meanwhile. Collecting requests is
`podium.workers.local.batching`. Needs torch.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache

from podium.workers.local.captured import MAX_ROWS, CapturedRows, CapturedSizes, RowSize
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


@dataclass(frozen=True, slots=True)
class Job:
    """A prompt to complete; `adapter_index` is the index of its adapter."""

    key: Hashable
    prompt: Sequence[int]
    sampling: Sampling
    adapter_index: int | None = None

    @property
    def size(self) -> int:
        """The most tokens that it may take."""
        return len(self.prompt) + self.sampling.max_tokens


JoiningJobs = Callable[[], Sequence[Job]]
"""Returns the jobs that arrived since the last call."""


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
        self.captured = CapturedSizes(model)

    @torch.inference_mode()
    def complete(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sequence[Sampling],
        *,
        adapter_indices: Sequence[int] | None = None,
        copies: int = 1,
        captured: bool = False,
    ) -> list[Completion]:
        """Return `copies` completions of every prompt, those of one prompt together.

        `captured` is for batch sizes that recur.
        """
        if adapter_indices is not None:
            if self.adapters is None:
                raise ValueError("only a decoder with adapters can choose them")
            count = len(self.adapters.names)
            if not all(0 <= index <= count for index in adapter_indices):
                raise ValueError(
                    f"{max(adapter_indices)} is not an adapter index; there are {count} adapters"
                )
        if not all(prompts):
            raise ValueError("a prompt has no tokens; there is nothing to complete")
        if not prompts:
            return []
        samplings = [_for_copy(one, copy) for one in sampling for copy in range(copies)]
        if captured:
            jobs = [
                Job(
                    index,
                    prompts[one],
                    own,
                    None if adapter_indices is None else adapter_indices[one],
                )
                for index, own in enumerate(samplings)
                for one in [index // copies]
            ]
            if all(self.has_room_for(job) for job in jobs):
                done = dict(pair for pairs in self.complete_jobs(jobs) for pair in pairs)
                return [done[job.key] for job in jobs]
        logits, cache, mask = self.prefill(prompts, adapter_indices)
        every = torch.arange(len(prompts), device=self.device).repeat_interleave(copies)
        rows = self._tensor(adapter_indices) if adapter_indices is not None else None
        memory = GrowingCache(self, cache, mask, rows, every)
        return _Generation(self, memory, samplings).run_to_end(logits[every])

    def has_room_for(self, job: Job) -> bool:
        """True if the job can be completed in a captured row."""
        return self.captured.size_for(1, job.size, self.adapters) is not None

    @torch.inference_mode()
    def complete_jobs(
        self, jobs: Sequence[Job], arrivals: JoiningJobs = tuple
    ) -> Iterator[list[tuple[Hashable, Completion]]]:
        """Complete jobs in captured rows; yield those that are done, by their keys.

        Others join from `arrivals` while any is unfinished.
        """
        yield from _ContinuousBatch(self, jobs).run(arrivals)

    def prefill(
        self, prompts: Sequence[Sequence[int]], adapter_indices: Sequence[int] | None
    ) -> tuple[Tensor, DynamicCache, Tensor]:
        """Return the logits after each prompt, the keys and values, and the mask."""
        rows = self._tensor(adapter_indices) if adapter_indices is not None else None
        tokens, mask = self._pad(prompts, max(map(len, prompts)))
        cache = DynamicCache(config=self.model.config)
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        return forward(self, tokens, mask, positions, cache, rows), cache, mask

    def sample(self, logits: Tensor, sampling: _SamplingTensors, steps: Tensor) -> Tensor:
        """Return the next token of every row; `steps` counts its tokens so far."""
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
            last = sampling.seeded_draws.shape[1] - 1
            seeded_draws = sampling.seeded_draws.gather(1, steps.clamp(max=last)[:, None])[:, 0]
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

    def keep(self, rows: Tensor) -> None:
        """Continue with these rows; a row may be repeated."""
        self._cache.batch_select_indices(rows)
        self._mask, self._positions = self._mask[rows], self._positions[rows]
        self._rows = self._rows[rows] if self._rows is not None else None


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
    """A batch that grows with every token."""

    def __init__(
        self, decoder: Decoder, memory: GrowingCache, sampling: Sequence[Sampling]
    ) -> None:
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
            steps = torch.full_like(self._limits, step)
            tokens = self._decoder.sample(logits, self._chances, steps)
            written[self._rows[live], step] = tokens[live]
            ends = self._decoder.is_end(tokens) & live
            ended[self._rows[ends]] = True
            live = live & ~ends & (self._limits > step + 1)
            remaining = int(live.sum())
            if remaining == 0:
                break
            if remaining < len(live) // 2:
                kept = live.nonzero()[:, 0]
                self._memory.keep(kept)
                self._chances.keep(kept)
                tokens, self._rows = tokens[kept], self._rows[kept]
                self._limits, live = self._limits[kept], live[kept]
            logits = self._memory.step(tokens)
        return [
            Completion(tuple(token for token in row if token >= 0), has_ended)
            for row, has_ended in zip(written.tolist(), ended.tolist(), strict=True)
        ]


CHECK_EVERY: Final = 8
"""Steps between two looks at which rows are done; the GPU does not wait in between."""

JOIN_EVERY: Final = 16
"""Steps, at least, between readings of new prompts while other rows are decoded."""

MAX_PROMPT_TOKENS: Final = 65_536
"""Prompt tokens, padded, that are read at a time."""

UNUSED: Final = Sampling(max_tokens=1)


@dataclass(slots=True)
class _RowState:
    """What is known of each row: its job, its next logits and its tokens so far."""

    memory: CapturedRows
    jobs: list[Job | None]
    logits: Tensor
    written: Tensor
    counts: Tensor
    limits: Tensor
    live: Tensor
    ended: Tensor
    chances: _SamplingTensors = field(init=False)

    @classmethod
    def empty(cls, memory: CapturedRows, like: Tensor) -> _RowState:
        rows, device = memory.size.rows, like.device
        numbers = torch.zeros(rows, dtype=torch.long, device=device)
        flags = torch.zeros(rows, dtype=torch.bool, device=device)
        return cls(
            memory,
            [None] * rows,
            like.new_zeros((rows, like.shape[1])),
            numbers.new_zeros((rows, memory.size.width)),
            *(numbers, numbers.clone()),
            *(flags, flags.clone()),
        )

    @property
    def free(self) -> list[int]:
        return [row for row, job in enumerate(self.jobs) if job is None]

    @property
    def used(self) -> list[int]:
        return [row for row, job in enumerate(self.jobs) if job is not None]

    def start(self, where: Tensor, jobs: Sequence[Job], logits: Tensor) -> None:
        """Start jobs in these rows; `logits` are those after their prompts."""
        for row, job in zip(where.tolist(), jobs, strict=True):
            self.jobs[row] = job
        self.logits[where] = logits
        self.counts[where], self.ended[where], self.live[where] = 0, False, True
        self.limits[where] = self.limits.new_tensor([job.sampling.max_tokens for job in jobs])
        self._read_sampling()

    def copy_from(self, other: _RowState) -> None:
        """Continue with the used rows of another size, as the first ones."""
        used = other.used
        where = torch.tensor(used, device=self.live.device)
        count = len(used)
        self.memory.copy_from(other.memory, where)
        self.jobs[:count] = [other.jobs[row] for row in used]
        self.written[:count, : other.written.shape[1]] = other.written[where]
        for name in ("logits", "counts", "limits", "live", "ended"):
            getattr(self, name)[:count] = getattr(other, name)[where]
        self._read_sampling()

    def _read_sampling(self) -> None:
        own = [UNUSED if job is None else job.sampling for job in self.jobs]
        self.chances = _SamplingTensors(own, self.live.device)

    def step(self, decoder: Decoder) -> None:
        """Draw the next token of every row; a row that is done stays as it is."""
        tokens = decoder.sample(self.logits, self.chances, self.counts)
        last = self.written.shape[1] - 1
        self.written.scatter_(1, self.counts.clamp(max=last)[:, None], tokens[:, None])
        ends = decoder.is_end(tokens) & self.live
        self.counts += self.live
        self.ended |= ends
        self.live &= ~ends & (self.counts < self.limits)
        self.logits = self.memory.step(tokens)

    def take_done(self) -> list[tuple[Hashable, Completion]]:
        """Return the completions of rows that are done, and free these."""
        live = self.live.tolist()
        done = [row for row in self.used if not live[row]]
        if not done:
            return []
        where = torch.tensor(done, device=self.live.device)
        counts, ended = self.counts[where].tolist(), self.ended[where].tolist()
        written = self.written[where, : max(counts)].tolist()
        found = []
        for row, tokens, count, has_ended in zip(done, written, counts, ended, strict=True):
            job, self.jobs[row] = self.jobs[row], None
            assert job is not None
            found.append((job.key, Completion(tuple(tokens[:count]), has_ended)))
        return found


class _ContinuousBatch:
    """Completes jobs in captured rows; a row that is done takes the next job."""

    def __init__(self, decoder: Decoder, jobs: Sequence[Job]) -> None:
        self._decoder = decoder
        self._waiting = deque(jobs)
        self._rows: _RowState | None = None

    def run(self, arrivals: JoiningJobs) -> Iterator[list[tuple[Hashable, Completion]]]:
        since = 0
        while self._waiting or self._used:
            if self._waiting and (since >= JOIN_EVERY or not self._used):
                since = 0
                while self._join():
                    pass
            assert self._rows is not None
            for _ in range(CHECK_EVERY):
                self._rows.step(self._decoder)
            since += CHECK_EVERY
            if done := self._rows.take_done():
                yield done
            self._waiting.extend(arrivals())

    @property
    def _used(self) -> list[Job]:
        return [job for job in self._rows.jobs if job is not None] if self._rows else []

    def _join(self) -> bool:
        """Read as many waiting prompts as rows and memory allow; False if none."""
        size = self._next_size()
        taken = self._take(size)
        if not taken:
            return False
        numbers: dict[tuple[int, ...], int] = {}
        keys = [(job.adapter_index or 0, *job.prompt) for job in taken]
        sources = [numbers.setdefault(key, len(numbers)) for key in keys]
        unique = [taken[sources.index(number)] for number in range(len(numbers))]
        has_adapters = self._decoder.adapters is not None
        adapter_indices = [job.adapter_index or 0 for job in unique] if has_adapters else None
        logits, cache, mask = self._decoder.prefill([job.prompt for job in unique], adapter_indices)
        rows = self._resized(size, [layer.keys for layer in cache.layers], logits)
        free, source, indices = (
            None if values is None else torch.tensor(values, device=mask.device)
            for values in (rows.free[: len(taken)], sources, adapter_indices)
        )
        assert free is not None
        assert source is not None
        rows.memory.load(free, cache, mask, source, indices)
        rows.start(free, taken, logits[source])
        return True

    def _next_size(self) -> RowSize:
        """Return the size for all jobs; the present one if these rows could not move to it."""
        used, adapters = self._used, self._decoder.adapters
        jobs = [*used, *islice(self._waiting, MAX_ROWS)]
        wanted = self._decoder.captured.size_for(len(jobs), max(job.size for job in jobs), adapters)
        assert wanted is not None, "the caller keeps other jobs away"
        if self._rows is None:
            return wanted
        present = self._rows.memory.size
        has_room = present.rows >= wanted.rows and present.width >= wanted.width
        return present if used and (has_room or wanted.rows < len(used)) else wanted

    def _take(self, size: RowSize) -> list[Job]:
        """Take the waiting jobs that are read next."""
        room = size.rows - len(self._used)
        taken: list[Job] = []
        widest = 0
        while self._waiting and len(taken) < room and self._waiting[0].size <= size.width:
            widest = max(widest, len(self._waiting[0].prompt))
            if taken and widest * (len(taken) + 1) > MAX_PROMPT_TOKENS:
                break
            taken.append(self._waiting.popleft())
        return taken

    def _resized(self, size: RowSize, like: Sequence[Tensor], logits: Tensor) -> _RowState:
        """Return the rows, moved to that size if they have another."""
        before = self._rows
        if before is None or before.memory.size != size:
            memory = self._decoder.captured.get(size, self._decoder.adapters, like)
            self._rows = _RowState.empty(memory, logits)
            if before is not None and before.used:
                self._rows.copy_from(before)
        assert self._rows is not None
        return self._rows


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
