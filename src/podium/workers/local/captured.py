"""Decoding steps that a graphics card repeats by itself.

A small model's step is a thousand tiny operations, and telling the card each of them takes longer
than doing them. Where batches of one size come again and again, as in training, a step is
recorded once as a CUDA graph over tensors of fixed size, and then only repeated. On a processor
the same code runs without recording anything.

Needs torch, and a model whose layers are those of Llama or Qwen2.
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

GRAIN: Final = 64
"""Sizes are rounded up to multiples of this, so that few are different."""

MOST_BYTES: Final = 24_000_000_000
"""What the keys and values of all remembered sizes may take together, and no more than half of what
is free on the card when the model is there; of more, the sizes that were not used for the longest
time are forgotten."""

LEAST_ROWS: Final = 256
"""When few rows of a batch are left, they go on in a smaller one, of no fewer rows than this."""

SPARE: Final = 2
"""A recorded step is also taken for smaller batches, where it is at most so many times too large:
that costs less than recording another."""

KINDS: Final = ("llama", "qwen2")
"""The kinds of model that are known to work like this, by the name that transformers has."""

GROUPED_ATTENTION: Final = "podium_grouped"
"""The name under which transformers knows `grouped_attention`."""


class FixedCache:
    """Keys and values of their final size; a step writes at `position`."""

    def __init__(self, like: Sequence[Tensor], rows: int, width: int) -> None:
        """For as many layers as there are in `like`, the keys of another batch."""
        first = like[0]
        shape = (rows, first.shape[1], width, first.shape[3])
        self.keys = [first.new_zeros(shape) for _ in like]
        self.values = [first.new_zeros(shape) for _ in like]
        self.position = torch.zeros(1, dtype=torch.long, device=first.device)

    def fill(self, prompts: DynamicCache, every: Tensor) -> None:
        """Begin with the keys and values of the prompts, each as often as `every` names it."""
        for place, layer in enumerate(prompts.layers):
            width = layer.keys.shape[2]
            self.keys[place][:, :, :width] = layer.keys[every]
            self.values[place][:, :, :width] = layer.values[every]
        self.position.fill_(width)

    def take_over(self, other: FixedCache, rows: Tensor) -> None:
        """Go on with these rows of another batch, which is no wider."""
        width = other.keys[0].shape[2]
        for mine, theirs in ((self.keys, other.keys), (self.values, other.values)):
            for to, from_ in zip(mine, theirs, strict=True):
                to[:, :, :width] = from_[rows]
        self.position.copy_(other.position)

    def update(self, key: Tensor, value: Tensor, layer: int, *_: Any) -> tuple[Tensor, Tensor]:
        """What transformers calls: write the new token's, and return all."""
        self.keys[layer].index_copy_(2, self.position, key)
        self.values[layer].index_copy_(2, self.position, value)
        return self.keys[layer], self.values[layer]

    def get_seq_length(self, layer: int = 0) -> int:
        """What transformers asks where it has to know; positions are always given here."""
        return 0


class FixedMemory:
    """A batch of fixed size, whose step is recorded when it is first taken. It may have fewer
    rows than there is room for; the others do what the last one does."""

    def __init__(
        self, model: Any, like: Sequence[Tensor], size: Size, adapters: AdapterStack | None
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
        """Forget the batch before; go on from these prompts, each row with its adapter."""
        self._used = len(every)
        every = self._filled_up(every)
        if choices is not None:
            self._choices.copy_(choices[every])
        self.cache.fill(prompts, every)
        self._mask.zero_()
        self._mask[:, 0, 0, : mask.shape[1]] = mask[every].bool()
        self._positions.copy_(mask.sum(1)[every][:, None] - 1)

    def take_over(self, other: FixedMemory, rows: Tensor) -> None:
        """Forget the batch before; go on with these rows of another one."""
        self._used = len(rows)
        rows = self._filled_up(rows)
        self._choices.copy_(other._choices[rows])
        self.cache.take_over(other.cache, rows)
        self._mask.zero_()
        self._mask[..., : other.size.width] = other._mask[rows]
        self._positions.copy_(other._positions[rows])

    def step(self, tokens: Tensor) -> Tensor:
        """Take the next token of every row; return the logits after it."""
        self._tokens.copy_(self._filled_up(tokens)[:, None])
        self._positions += 1
        self._mask.index_fill_(3, self.cache.position, True)
        if self._tokens.is_cuda:
            self._replay()
        else:
            self._logits = self._forward()
        self.cache.position += 1
        assert self._logits is not None
        return self._logits[: self._used]

    def _filled_up(self, values: Tensor) -> Tensor:
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
        """Take the step a few times aside, as CUDA wants it, and then record it. Writing the
        same token to the same place again changes nothing."""
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(2):
                self._forward()
        torch.cuda.current_stream().wait_stream(aside)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            self._logits = self._forward()


class Size(NamedTuple):
    """What makes one recorded step another than the next: how many rows, how wide, and over how
    many adapters."""

    rows: int
    width: int
    adapters: int

    def holds(self, other: Size) -> bool:
        """Whether a batch of the other size fits in, and not too loosely."""
        return (
            self.adapters == other.adapters
            and self.rows >= other.rows
            and self.width >= other.width
            and self.rows * self.width <= SPARE * other.rows * other.width
        )


class FixedBatch:
    """A batch in a memory of fixed size, which moves to a smaller one when few of it are left."""

    def __init__(self, steps: CapturedSteps, memory: FixedMemory) -> None:
        self._steps = steps
        self._memory = memory

    def step(self, tokens: Tensor) -> Tensor:
        """Take the next token of every row; return the logits after it."""
        return self._memory.step(tokens)

    def keep(self, rows: Tensor) -> bool:
        """Go on with these rows alone, where a much smaller memory has room for them."""
        smaller = self._steps.smaller(self._memory, len(rows))
        if smaller is None:
            return False
        smaller.take_over(self._memory, rows)
        self._memory = smaller
        return True


class CapturedSteps:
    """The recorded steps of one model, by the size of their batch."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._room = room_beside(model) // 2
        self._memories: dict[Size, FixedMemory] = {}

    def width_for(self, prompts: Sequence[Sequence[int]]) -> int:
        """The width to which these prompts are padded."""
        return _rounded(max(map(len, prompts)))

    def has_room_for(self, prompts: Sequence[Sequence[int]], copies: int, max_tokens: int) -> bool:
        """Whether these prompts, and completions so long, can be of fixed size."""
        width = self.width_for(prompts) + _rounded(max_tokens)
        size = Size(_room_for(len(prompts) * copies), width, 0)
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
        """A batch that goes on from these prompts."""
        attention = self._model.config._attn_implementation
        assert attention in (GROUPED_ATTENTION, "sdpa"), f"{attention} takes no mask of yes and no"
        size = Size(
            _room_for(len(every)),
            mask.shape[1] + _rounded(max_tokens),
            len(adapters.names) if adapters is not None else 0,
        )
        memory = self._memory(size, [layer.keys for layer in prompts.layers], adapters)
        memory.begin(prompts, mask, every, choices)
        return FixedBatch(self, memory)

    def smaller(self, memory: FixedMemory, rows: int) -> FixedMemory | None:
        """A memory for so many rows of that one, where it is smaller and there is room for both."""
        size = memory.size._replace(rows=_room_for(max(rows, LEAST_ROWS)))
        if (
            size.rows >= memory.size.rows
            or self._bytes(size) + self._bytes(memory.size) > self._most_bytes
        ):
            return None
        return self._memory(size, memory.cache.keys, memory.adapters)

    def _memory(
        self, size: Size, like: Sequence[Tensor], adapters: AdapterStack | None
    ) -> FixedMemory:
        """One that a batch of that size fits in, remembered or made."""
        fitting = [other for other in self._memories if other.holds(size)]
        if fitting:
            size = min(fitting, key=self._bytes)
            memory = self._memories.pop(size)
        else:
            self._make_room_for(size)
            memory = FixedMemory(self._model, like, size, adapters)
        self._memories[size] = memory
        return memory

    def _make_room_for(self, size: Size) -> None:
        """Forget what is over other adapters, and then the oldest, as far as need be."""
        self._memories = {
            other: memory
            for other, memory in self._memories.items()
            if other.adapters == size.adapters
        }
        while self._memories and sum(map(self._bytes, (*self._memories, size))) > self._most_bytes:
            self._memories.pop(next(iter(self._memories)))

    @property
    def _most_bytes(self) -> int:
        return min(MOST_BYTES, self._room)

    def _bytes(self, size: Size) -> int:
        return size.rows * size.width * bytes_a_token(self._model)


def bytes_a_token(model: Any) -> int:
    """What the keys and values of one token take."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    taken: int = 2 * config.num_hidden_layers * heads * size * model.dtype.itemsize
    return taken


def room_beside(model: Any) -> int:
    """How many bytes are free where the model is; on a processor, as many as anybody asks for."""
    if model.device.type != "cuda":
        return sys.maxsize
    free: int = torch.cuda.mem_get_info(model.device)[0]
    return free


def can_be_captured(model: Any) -> bool:
    """Whether recording steps of this model, where it is, works and helps."""
    return model.device.type == "cuda" and model.config.model_type in KINDS


def _room_for(rows: int) -> int:
    """The next power of four: a step over rows that nobody uses costs less than recording one
    more size."""
    return 1 << 2 * -(-max(0, rows - 1).bit_length() // 2)


def _rounded(size: int) -> int:
    return -(-size // GRAIN) * GRAIN


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
    """Attention in which the heads that share a key are asked as one, so that keys and values
    need not be copied for each of them."""
    batch, heads, length, size = query.shape
    shared = key.shape[1]
    group = heads // shared
    asked = query.reshape(batch, shared, group * length, size)
    if attention_mask is None and length > 1:
        causal = torch.ones(length, key.shape[2], dtype=torch.bool, device=query.device)
        attention_mask = causal.tril(key.shape[2] - length)[None, None]
    if attention_mask is not None and length > 1:
        attention_mask = attention_mask.repeat(1, 1, group, 1)
    output = nn.functional.scaled_dot_product_attention(
        asked, key, value, attn_mask=attention_mask, dropout_p=dropout, scale=scaling
    )
    return output.reshape(batch, heads, length, size).transpose(1, 2).contiguous(), None


AttentionInterface.register(GROUPED_ATTENTION, grouped_attention)
AttentionMaskInterface.register(GROUPED_ATTENTION, sdpa_mask)
