"""Decoding steps captured as CUDA graphs.

A small model's step is a thousand tiny kernels, and launching them takes longer than running them.
Where batches of one size come again and again, as in training, a step is captured once over tensors
of fixed size and then replayed. On a CPU the same code runs without capturing. Needs torch, and a
model with the layers of Llama or Qwen2.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import DynamicCache
from transformers.masking_utils import sdpa_mask

from podium.workers.local.lora import AdapterStack

SIZE_MULTIPLE: Final = 64
"""Sizes are rounded up to multiples of this, so that few differ."""

MAX_BYTES: Final = 14_000_000_000
"""Bytes for the keys and values of all captured sizes, at most half of the GPU's free memory; the
least recently used sizes are dropped."""

MIN_ROWS: Final = 256
"""The smallest batch that the last rows of a batch move to."""

MAX_OVERSIZE: Final = 2
"""A captured step also serves smaller batches, up to this factor: that is cheaper than capturing
another."""

MODEL_TYPES: Final = ("llama", "qwen2")
"""Model types that are known to work, by transformers' names."""

GROUPED_ATTENTION: Final = "podium_grouped"
"""The name under which transformers knows `grouped_attention`."""


class FixedCache:
    """Keys and values of their final size; a step writes at `position`."""

    def __init__(self, like: Sequence[Tensor], rows: int, width: int) -> None:
        """Allocate as many layers as `like` has, the keys of another batch."""
        first = like[0]
        shape = (rows, first.shape[1], width, first.shape[3])
        self.keys = [first.new_zeros(shape) for _ in like]
        self.values = [first.new_zeros(shape) for _ in like]
        self.position = torch.zeros(1, dtype=torch.long, device=first.device)

    def fill(self, prompts: DynamicCache, every: Tensor) -> None:
        """Start from the prompts' keys and values, each as often as `every` names it."""
        for index, layer in enumerate(prompts.layers):
            width = layer.keys.shape[2]
            self.keys[index][:, :, :width] = layer.keys[every]
            self.values[index][:, :, :width] = layer.values[every]
        self.position.fill_(width)

    def continue_from(self, other: FixedCache, rows: Tensor) -> None:
        """Continue with these rows of another batch, which is no wider."""
        width = other.keys[0].shape[2]
        for mine, theirs in ((self.keys, other.keys), (self.values, other.values)):
            for to, from_ in zip(mine, theirs, strict=True):
                to[:, :, :width] = from_[rows]
        self.position.copy_(other.position)

    def update(self, key: Tensor, value: Tensor, layer: int, *_: Any) -> tuple[Tensor, Tensor]:
        """Write the new token's keys and values and return all; called by transformers."""
        self.keys[layer].index_copy_(2, self.position, key)
        self.values[layer].index_copy_(2, self.position, value)
        return self.keys[layer], self.values[layer]

    def get_seq_length(self, layer: int = 0) -> int:
        """Return 0: positions are always passed explicitly."""
        return 0


class FixedBatchCache:
    """A batch of fixed size; its first step is captured.

    Unused rows repeat the last one.
    """

    def __init__(
        self, model: Any, like: Sequence[Tensor], size: BatchSize, adapters: AdapterStack | None
    ) -> None:
        rows, width = size.rows, size.width
        device = like[0].device
        self.size = size
        self._model = model
        self.adapters = adapters
        self.cache = FixedCache(like, rows, width)
        self._used = rows
        self._choices = torch.zeros(rows, dtype=torch.long, device=device)
        self._tokens = torch.zeros((rows, 1), dtype=torch.long, device=device)
        self._positions = torch.zeros((rows, 1), dtype=torch.long, device=device)
        self._mask = torch.zeros((rows, 1, 1, width), dtype=torch.bool, device=device)
        self._logits: Tensor | None = None
        self._graph: torch.cuda.CUDAGraph | None = None

    def begin(
        self, prompts: DynamicCache, mask: Tensor, every: Tensor, choices: Tensor | None
    ) -> None:
        """Start from these prompts, each row with its adapter."""
        self._used = len(every)
        every = self._pad_rows(every)
        if choices is not None:
            self._choices.copy_(choices[every])
        self.cache.fill(prompts, every)
        self._mask.zero_()
        self._mask[:, 0, 0, : mask.shape[1]] = mask[every].bool()
        self._positions.copy_(mask.sum(1)[every][:, None] - 1)

    def continue_from(self, other: FixedBatchCache, rows: Tensor) -> None:
        self._used = len(rows)
        rows = self._pad_rows(rows)
        self._choices.copy_(other._choices[rows])
        self.cache.continue_from(other.cache, rows)
        self._mask.zero_()
        self._mask[..., : other.size.width] = other._mask[rows]
        self._positions.copy_(other._positions[rows])

    def step(self, tokens: Tensor) -> Tensor:
        """Append the next token of every row; return the logits after it."""
        self._tokens.copy_(self._pad_rows(tokens)[:, None])
        self._positions += 1
        self._mask.index_fill_(3, self.cache.position, True)
        if self._tokens.is_cuda:
            self._replay()
        else:
            self._logits = self._forward()
        self.cache.position += 1
        assert self._logits is not None
        return self._logits[: self._used]

    def _pad_rows(self, values: Tensor) -> Tensor:
        missing = len(self._choices) - len(values)
        return torch.cat([values, values[-1:].expand(missing)]) if missing else values

    def _forward(self) -> Tensor:
        with self.adapters.using(self._choices) if self.adapters else nullcontext():
            logits: Tensor = self._model(
                input_ids=self._tokens,
                attention_mask=self._mask,
                position_ids=self._positions,
                past_key_values=self.cache,
                use_cache=True,
                logits_to_keep=1,
            ).logits[:, -1]
        return logits

    def _replay(self) -> None:
        if self._graph is None:
            self._record()
        assert self._graph is not None
        self._graph.replay()

    def _record(self) -> None:
        """Warm up on a side stream, as CUDA requires, then capture.

        Writing the same token to the same index again changes nothing.
        """
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(2):
                self._forward()
        torch.cuda.current_stream().wait_stream(aside)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            self._logits = self._forward()


class BatchSize(NamedTuple):
    """The key of a captured step: rows, width and number of adapters."""

    rows: int
    width: int
    adapters: int

    def can_hold(self, other: BatchSize) -> bool:
        """True if a batch of the other size fits without too much waste."""
        return (
            self.adapters == other.adapters
            and self.rows >= other.rows
            and self.width >= other.width
            and self.rows * self.width <= MAX_OVERSIZE * other.rows * other.width
        )


class FixedBatch:
    """A batch in a cache of fixed size, which moves to a smaller one when few rows are left."""

    def __init__(self, steps: CapturedSteps, memory: FixedBatchCache) -> None:
        self._steps = steps
        self._memory = memory

    def step(self, tokens: Tensor) -> Tensor:
        """Append the next token of every row; return the logits after it."""
        return self._memory.step(tokens)

    def keep(self, rows: Tensor) -> bool:
        """Continue with these rows, in a smaller cache if there is one."""
        smaller = self._steps.smaller(self._memory, len(rows))
        if smaller is None:
            return False
        smaller.continue_from(self._memory, rows)
        self._memory = smaller
        return True


class CapturedSteps:
    """The captured steps of one model, by batch size."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._room = free_bytes(model) // 2
        self._memories: dict[BatchSize, FixedBatchCache] = {}

    def width_for(self, prompts: Sequence[Sequence[int]]) -> int:
        """Return the width to which these prompts are padded."""
        return _round_up(max(map(len, prompts)))

    def has_room_for(self, prompts: Sequence[Sequence[int]], copies: int, max_tokens: int) -> bool:
        """True if these prompts and completions fit into a fixed size."""
        width = self.width_for(prompts) + _round_up(max_tokens)
        size = BatchSize(_round_rows(len(prompts) * copies), width, 0)
        return self._bytes(size) <= self._most_bytes

    def batch(
        self,
        prompts: DynamicCache,
        mask: Tensor,
        every: Tensor,
        max_tokens: int,
        adapters: AdapterStack | None = None,
        choices: Tensor | None = None,
    ) -> FixedBatch:
        attention = self._model.config._attn_implementation
        assert attention in (GROUPED_ATTENTION, "sdpa"), f"{attention} takes no mask of yes and no"
        size = BatchSize(
            _round_rows(len(every)),
            mask.shape[1] + _round_up(max_tokens),
            len(adapters.names) if adapters is not None else 0,
        )
        memory = self._memory(size, [layer.keys for layer in prompts.layers], adapters)
        memory.begin(prompts, mask, every, choices)
        return FixedBatch(self, memory)

    def smaller(self, memory: FixedBatchCache, rows: int) -> FixedBatchCache | None:
        """Return a cache for fewer rows, if it is smaller and both fit into memory."""
        size = memory.size._replace(rows=_round_rows(max(rows, MIN_ROWS)))
        if (
            size.rows >= memory.size.rows
            or self._bytes(size) + self._bytes(memory.size) > self._most_bytes
        ):
            return None
        return self._memory(size, memory.cache.keys, memory.adapters)

    def _memory(
        self, size: BatchSize, like: Sequence[Tensor], adapters: AdapterStack | None
    ) -> FixedBatchCache:
        fitting = [other for other in self._memories if other.can_hold(size)]
        if fitting:
            size = min(fitting, key=self._bytes)
            memory = self._memories.pop(size)
        else:
            self._make_room_for(size)
            memory = FixedBatchCache(self._model, like, size, adapters)
        self._memories[size] = memory
        return memory

    def _make_room_for(self, size: BatchSize) -> None:
        """Drop caches of other adapters, then the oldest, until there is room."""
        self._memories = {
            other: memory
            for other, memory in self._memories.items()
            if other.adapters == size.adapters
        }
        while self._memories and sum(map(self._bytes, (*self._memories, size))) > self._most_bytes:
            self._memories.pop(next(iter(self._memories)))

    @property
    def _most_bytes(self) -> int:
        return min(MAX_BYTES, self._room)

    def _bytes(self, size: BatchSize) -> int:
        return size.rows * size.width * bytes_per_token(self._model)


def bytes_per_token(model: Any) -> int:
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    taken: int = 2 * config.num_hidden_layers * heads * size * model.dtype.itemsize
    return taken


def free_bytes(model: Any) -> int:
    """Return the free bytes on the model's device; unlimited on a CPU."""
    if model.device.type != "cuda":
        return sys.maxsize
    free: int = torch.cuda.mem_get_info(model.device)[0]
    return free


def can_be_captured(model: Any) -> bool:
    """True if capturing works and helps for this model on its device."""
    return model.device.type == "cuda" and model.config.model_type in MODEL_TYPES


def _round_rows(rows: int) -> int:
    """Return the next power of four: unused rows cost less than capturing one more size."""
    return 1 << 2 * -(-max(0, rows - 1).bit_length() // 2)


def _round_up(size: int) -> int:
    return -(-size // SIZE_MULTIPLE) * SIZE_MULTIPLE


def grouped_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention that treats heads sharing a key as one, without copying keys and values."""
    batch, heads, length, size = query.shape
    shared = key.shape[1]
    group = heads // shared
    grouped = query.reshape(batch, shared, group * length, size)
    if attention_mask is None and length > 1:
        causal = torch.ones(length, key.shape[2], dtype=torch.bool, device=query.device)
        attention_mask = causal.tril(key.shape[2] - length)[None, None]
    if attention_mask is not None and length > 1:
        attention_mask = attention_mask.repeat(1, 1, group, 1)
    output = nn.functional.scaled_dot_product_attention(
        grouped, key, value, attn_mask=attention_mask, dropout_p=dropout, scale=scaling
    )
    return output.reshape(batch, heads, length, size).transpose(1, 2).contiguous(), None


AttentionInterface.register(GROUPED_ATTENTION, grouped_attention)
AttentionMaskInterface.register(GROUPED_ATTENTION, sdpa_mask)
