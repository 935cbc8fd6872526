"""Decoding steps that a graphics card repeats by itself.

A small model's step is a thousand tiny operations, and telling the card each of them takes longer
than doing them. Where batches of one size come again and again, as in training, a step is
recorded once as a CUDA graph over tensors of fixed size, and then only repeated. On a processor
the same code runs without recording anything.

Needs torch, and a model whose layers are those of Llama or Qwen2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import DynamicCache
from transformers.masking_utils import sdpa_mask

GRAIN: Final = 64
"""Sizes are rounded up to multiples of this, so that few are different."""

MOST_GRAPHS: Final = 2
"""How many sizes are remembered; each holds the keys and values of a whole batch."""

GROUPED_ATTENTION: Final = "podium_grouped"
"""The name under which transformers knows `grouped_attention`."""


class FixedCache:
    """Keys and values of their final size; a step writes at `position`."""

    def __init__(self, like: DynamicCache, rows: int, width: int) -> None:
        first = like.layers[0].keys
        shape = (rows, first.shape[1], width, first.shape[3])
        self.keys = [first.new_zeros(shape) for _ in like.layers]
        self.values = [first.new_zeros(shape) for _ in like.layers]
        self.position = torch.zeros(1, dtype=torch.long, device=first.device)

    def fill(self, prompts: DynamicCache, every: Tensor) -> None:
        """Begin with the keys and values of the prompts, each as often as `every` names it."""
        for place, layer in enumerate(prompts.layers):
            width = layer.keys.shape[2]
            self.keys[place][:, :, :width] = layer.keys[every]
            self.values[place][:, :, :width] = layer.values[every]
        self.position.fill_(width)

    def update(self, key: Tensor, value: Tensor, layer: int, *_: Any) -> tuple[Tensor, Tensor]:
        """What transformers calls: write the new token's, and return all."""
        self.keys[layer].index_copy_(2, self.position, key)
        self.values[layer].index_copy_(2, self.position, value)
        return self.keys[layer], self.values[layer]

    def get_seq_length(self, layer: int = 0) -> int:
        """What transformers asks where it has to know; positions are always given here."""
        return 0


class FixedMemory:
    """A batch of fixed size, whose step is recorded when it is first taken."""

    def __init__(self, model: Any, like: DynamicCache, rows: int, width: int) -> None:
        device = like.layers[0].keys.device
        self._model = model
        self._cache = FixedCache(like, rows, width)
        self._tokens = torch.zeros((rows, 1), dtype=torch.long, device=device)
        self._positions = torch.zeros((rows, 1), dtype=torch.long, device=device)
        self._mask = torch.zeros((rows, 1, 1, width), dtype=torch.bool, device=device)
        self._logits: Tensor | None = None
        self._graph: torch.cuda.CUDAGraph | None = None

    def begin(self, prompts: DynamicCache, mask: Tensor, every: Tensor) -> None:
        """Forget the batch before; go on from these prompts."""
        self._cache.fill(prompts, every)
        self._mask.zero_()
        self._mask[:, 0, 0, : mask.shape[1]] = mask[every].bool()
        self._positions.copy_(mask.sum(1)[every][:, None] - 1)

    def step(self, tokens: Tensor) -> Tensor:
        """Take the next token of every row; return the logits after it."""
        self._tokens.copy_(tokens[:, None])
        self._positions += 1
        self._mask.index_fill_(3, self._cache.position, True)
        if self._tokens.is_cuda:
            self._replay()
        else:
            self._logits = self._forward()
        self._cache.position += 1
        assert self._logits is not None
        return self._logits

    def keep(self, rows: Tensor) -> bool:
        """A batch of fixed size keeps all its rows."""
        return False

    def _forward(self) -> Tensor:
        logits: Tensor = self._model(
            input_ids=self._tokens,
            attention_mask=self._mask,
            position_ids=self._positions,
            past_key_values=self._cache,
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


class CapturedSteps:
    """The recorded steps of one model, by the size of their batch."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._memories: dict[tuple[int, int], FixedMemory] = {}

    def width_for(self, prompts: Sequence[Sequence[int]]) -> int:
        """The width to which these prompts are padded."""
        return _rounded(max(map(len, prompts)))

    def memory(
        self, prompts: DynamicCache, mask: Tensor, every: Tensor, max_tokens: int
    ) -> FixedMemory:
        """A batch that goes on from these prompts."""
        attention = self._model.config._attn_implementation
        assert attention in (GROUPED_ATTENTION, "sdpa"), f"{attention} takes no mask of yes and no"
        size = (len(every), mask.shape[1] + _rounded(max_tokens))
        memory = self._memories.pop(size, None)
        if memory is None:
            while len(self._memories) >= MOST_GRAPHS:
                self._memories.pop(next(iter(self._memories)))
            memory = FixedMemory(self._model, prompts, *size)
        self._memories[size] = memory
        memory.begin(prompts, mask, every)
        return memory


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
    need not be copied for each of them: in a large batch that copy is most of a step."""
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
