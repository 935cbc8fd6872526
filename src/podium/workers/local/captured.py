"""Decoding in rows of fixed size, whose step is captured as a CUDA graph.

A small model's step is a thousand tiny kernels, and launching them takes longer than running them.
A step over tensors of fixed size is captured once and then replayed. Each row has a position of its
own, so that a row that is done can take another prompt while the others continue. On a CPU the same
code runs without capturing. Needs torch, and a model with the layers of Llama or Qwen2.
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

MAX_ROWS: Final = 256
"""More rows decode no faster: at 1.5 billion parameters, 256 take 8.4 ms a step on an H200, and
1,024 take 36."""

WIDTH_MULTIPLE: Final = 256
"""Widths are rounded up to multiples of this, so that few differ."""

MAX_BYTES: Final = 16_000_000_000
"""Bytes for the keys and values of all captured sizes, at most half of the GPU's free memory; the
least recently used sizes are dropped."""

MAX_OVERSIZE: Final = 2
"""A captured step also serves fewer or narrower rows, up to this factor: that is cheaper than
capturing another."""

MODEL_TYPES: Final = ("llama", "qwen2")
"""Model types that are known to work, by transformers' names."""

GROUPED_ATTENTION: Final = "podium_grouped"
"""The name under which transformers knows `grouped_attention`."""


class RowSize(NamedTuple):
    """The key of a captured step: rows, tokens in each, and number of adapters."""

    rows: int
    width: int
    adapters: int

    def can_hold(self, other: RowSize) -> bool:
        """True if the other size fits without too much waste."""
        return (
            self.adapters == other.adapters
            and self.rows >= other.rows
            and self.width >= other.width
            and self.rows * self.width <= MAX_OVERSIZE * other.rows * other.width
        )


class RowCache:
    """Keys and values of their final size; `positions` says where each row's next token goes."""

    def __init__(self, like: Sequence[Tensor], size: RowSize) -> None:
        """Allocate as many layers as `like` has, the keys of another batch."""
        shape = (size.rows, like[0].shape[1], size.width, like[0].shape[3])
        self.keys = [layer.new_zeros(shape) for layer in like]
        self.values = [layer.new_zeros(shape) for layer in like]
        self.positions = torch.zeros(size.rows, dtype=torch.long, device=like[0].device)

    def load(self, rows: Tensor, prompts: DynamicCache, mask: Tensor, sources: Tensor) -> None:
        """Start rows from prompts that are padded on the left; a prompt may serve several."""
        lengths = mask.sum(1)[sources]
        width = mask.shape[1]
        columns = torch.arange(width, device=mask.device) + (width - lengths)[:, None]
        columns = columns.clamp(max=width - 1)[:, None, :, None]
        for to, layers in ((self.keys, "keys"), (self.values, "values")):
            for own, layer in zip(to, prompts.layers, strict=True):
                read = getattr(layer, layers)[sources]
                own[rows, :, :width] = read.gather(2, columns.expand_as(read))
        self.positions[rows] = lengths

    def copy_from(self, other: RowCache, rows: Tensor) -> None:
        """Put these rows of a cache that is no wider first."""
        count, width = len(rows), other.keys[0].shape[2]
        for mine, theirs in ((self.keys, other.keys), (self.values, other.values)):
            for to, from_ in zip(mine, theirs, strict=True):
                to[:count, :, :width] = from_[rows]
        self.positions[:count] = other.positions[rows]

    def update(self, key: Tensor, value: Tensor, layer: int, *_: Any) -> tuple[Tensor, Tensor]:
        """Write each row's new keys and values and return all; called by transformers."""
        where = self.positions[:, None, None, None].expand_as(key)
        self.keys[layer].scatter_(2, where, key)
        self.values[layer].scatter_(2, where, value)
        return self.keys[layer], self.values[layer]

    def get_seq_length(self, layer: int = 0) -> int:
        """Return 0: positions are always passed explicitly."""
        return 0


class CapturedRows:
    """Rows of one size with their captured step."""

    def __init__(
        self, model: Any, like: Sequence[Tensor], size: RowSize, adapters: AdapterStack | None
    ) -> None:
        self.size = size
        self.cache = RowCache(like, size)
        self._model = model
        self._adapters = adapters
        device = like[0].device
        self._adapter_indices = torch.zeros(size.rows, dtype=torch.long, device=device)
        self._tokens = torch.zeros((size.rows, 1), dtype=torch.long, device=device)
        self._columns = torch.arange(size.width, device=device)
        self._logits: Tensor | None = None
        self._graph: torch.cuda.CUDAGraph | None = None

    def load(
        self,
        rows: Tensor,
        prompts: DynamicCache,
        mask: Tensor,
        sources: Tensor,
        adapter_indices: Tensor | None,
    ) -> None:
        """Start these rows, each from its prompt and with its adapter."""
        self.cache.load(rows, prompts, mask, sources)
        if adapter_indices is not None:
            self._adapter_indices[rows] = adapter_indices[sources]

    def copy_from(self, other: CapturedRows, rows: Tensor) -> None:
        """Continue with these rows of another size, as the first ones."""
        self.cache.copy_from(other.cache, rows)
        self._adapter_indices[: len(rows)] = other._adapter_indices[rows]

    def step(self, tokens: Tensor) -> Tensor:
        """Append the next token of every row; return the logits after it.

        Rows that are not used write where their next prompt will.
        """
        self._tokens.copy_(tokens[:, None])
        if self._tokens.is_cuda:
            self._replay()
        else:
            self._logits = self._forward()
        self.cache.positions.add_(1).clamp_(max=self.size.width - 1)
        assert self._logits is not None
        return self._logits

    def _forward(self) -> Tensor:
        mask = self._columns <= self.cache.positions[:, None]
        with self._adapters.using(self._adapter_indices) if self._adapters else nullcontext():
            logits: Tensor = self._model(
                input_ids=self._tokens,
                attention_mask=mask[:, None, None],
                position_ids=self.cache.positions[:, None],
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

        Writing the same token to the same position again changes nothing.
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


class CapturedSizes:
    """The captured rows of one model, by their size."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._room = free_bytes(model) // 2
        self._rows: dict[RowSize, CapturedRows] = {}

    def size_for(self, rows: int, width: int, adapters: AdapterStack | None) -> RowSize | None:
        """Return the size for so many rows, or for fewer if memory is short; None if for none."""
        count = len(adapters.names) if adapters is not None else 0
        rounded_width = -(-width // WIDTH_MULTIPLE) * WIDTH_MULTIPLE
        size = RowSize(_round_rows(min(rows, MAX_ROWS)), rounded_width, count)
        while self._bytes(size) > self._most_bytes:
            if size.rows == 1:
                return None
            size = size._replace(rows=size.rows // 4)
        return size

    def get(
        self, size: RowSize, adapters: AdapterStack | None, like: Sequence[Tensor]
    ) -> CapturedRows:
        """Return rows of that size or somewhat larger ones, captured before if possible.

        `like` are the keys of another batch, a tensor for each layer.
        """
        attention = self._model.config._attn_implementation
        assert attention in (GROUPED_ATTENTION, "sdpa"), f"{attention} takes no mask of yes and no"
        fitting = [other for other in self._rows if other.can_hold(size)]
        if fitting:
            size = min(fitting, key=self._bytes)
            rows = self._rows.pop(size)
        else:
            self._make_room_for(size)
            rows = CapturedRows(self._model, like, size, adapters)
        self._rows[size] = rows
        return rows

    def _make_room_for(self, size: RowSize) -> None:
        """Drop rows of other adapters, then the oldest, until there is room."""
        self._rows = {
            other: rows for other, rows in self._rows.items() if other.adapters == size.adapters
        }
        while self._rows and sum(map(self._bytes, (*self._rows, size))) > self._most_bytes:
            self._rows.pop(next(iter(self._rows)))

    @property
    def _most_bytes(self) -> int:
        return min(MAX_BYTES, self._room)

    def _bytes(self, size: RowSize) -> int:
        return size.rows * size.width * bytes_per_token(self._model)


def _round_rows(rows: int) -> int:
    """Return the next power of four: unused rows cost less than capturing one more size."""
    return 1 << 2 * -(-max(0, rows - 1).bit_length() // 2)


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
