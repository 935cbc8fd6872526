"""Log-probabilities of plans, with a shared prompt read only once.

A row is a prompt followed by its plans, each of which attends to the prompt and itself. Plans with
an advantage of 0 are skipped where only the advantage counts; the gradient is the same, and TRL's
entropy is that of the plans that are read. Rows go through the model in passes of bounded size, so
that memory holds one pass at a time: with `dapo`, whose loss is a sum over tokens, each has a
backward pass of its own; with other losses, passes are recomputed on the way back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from trl import GRPOTrainer

MAX_ROW_TOKENS: Final = 2048
"""The most tokens of a row; further plans begin another one. Attention over a row costs the square
of its length."""

LOGIT_TOKENS: Final = 2048
"""Tokens whose logits are in memory at a time; they are computed again on the way back."""

WIDTH_MULTIPLE: Final = 8
"""Row widths are multiples of this, as attention masks on a GPU need."""

PADDING: Final = -1
PROMPT: Final = 0
"""Segments of a row that are no plan; plans count from 1."""


@dataclass(frozen=True, slots=True)
class SharedRow:
    """A prompt and some of its plans, each with its position in the batch."""

    prompt: Sequence[int]
    plans: tuple[tuple[int, Sequence[int]], ...]

    @property
    def length(self) -> int:
        return len(self.prompt) + sum(len(plan) for _, plan in self.plans)


@dataclass(frozen=True, slots=True)
class ForwardPass:
    """Rows as tensors. The logits at the flat positions `sources` predict the `targets`, which
    are the tokens `offsets` of the plans `owners`."""

    tokens: Tensor
    positions: Tensor
    segments: Tensor
    sources: Tensor
    targets: Tensor
    owners: Tensor
    offsets: Tensor


class SharedPromptTrainer(GRPOTrainer):  # type: ignore[misc]
    """TRL's trainer with shared prompts, at most `max_tokens` in one pass."""

    def __init__(self, *, max_tokens: int, **rest: Any) -> None:
        super().__init__(**rest)
        self._most_tokens = max_tokens
        self._is_read: Tensor | None = None
        self.dropped_passes = 0

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        loss: Tensor
        if self.beta or inputs.get("old_per_token_logps") is not None:
            loss = super()._compute_loss(model, inputs)
            return loss
        self._is_read = completion_rows(inputs["advantages"], inputs["completion_mask"])
        if self.loss_type == "dapo" and model.training:
            return self._learn_in_passes(model, inputs, self._is_read)
        try:
            loss = super()._compute_loss(model, inputs)
        finally:
            self._is_read = None
        return loss

    def _learn_in_passes(self, model: Any, inputs: dict[str, Any], is_read: Tensor) -> Tensor:
        """Return the loss, whose gradient is already accumulated.

        A pass without a finite gradient is left out and counted in `dropped_passes`, except under a
        gradient scaler, which has to see it.
        """
        mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1) * is_read[:, None]
        tokens = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        rows = shared_rows(tokens.tolist(), mask.tolist(), inputs["completion_ids"].shape[1])
        self._is_read = None
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        is_scaled = self.accelerator.scaler is not None
        loss = torch.zeros((), device=is_read.device)
        for part in pack_rows(rows, self._most_tokens):
            owners = [owner for row in part for owner, _ in row.plans]
            before = [None if one.grad is None else one.grad.clone() for one in trained]
            part_loss = super()._compute_loss(model, select_rows(inputs, owners))
            self.accelerator.backward(part_loss)
            if is_scaled or all_finite([one.grad for one in trained if one.grad is not None]):
                loss += part_loss.detach()
                continue
            self.dropped_passes += 1
            for one, gradient in zip(trained, before, strict=True):
                one.grad = gradient
        return loss + zero_loss(model)

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        *_: Any,
        **__: Any,
    ) -> tuple[Tensor, Tensor, None]:
        """Return each token's log-probability and entropy; 0 and the mean for skipped plans."""
        unwrapped = self.accelerator.unwrap_model(model)
        base = getattr(unwrapped, "get_base_model", lambda: unwrapped)()
        logps = torch.zeros(len(input_ids), logits_to_keep, device=input_ids.device)
        entropies = torch.zeros_like(logps)
        if self._is_read is not None:
            attention_mask = attention_mask * self._is_read[:, None]
        rows = shared_rows(input_ids.tolist(), attention_mask.tolist(), logits_to_keep)
        parts = list(pack_rows(rows, self._most_tokens))
        for part in parts:
            one = as_tensors(part, input_ids.device)
            needed = (base, one, self.temperature)
            with self.accelerator.autocast():
                if len(parts) == 1:
                    found, spread = completion_logprobs(*needed)
                else:
                    found, spread = checkpoint(completion_logprobs, *needed, use_reentrant=False)
            where = (one.owners, one.offsets)
            logps = logps.index_put(where, found)
            entropies = entropies.index_put(where, spread)
        if self._is_read is not None and rows:
            tokens = sum(len(plan) for row in rows for _, plan in row.plans)
            usual = entropies.detach().sum() / tokens
            entropies = torch.where(self._is_read[:, None], entropies, usual)
        return logps if rows else logps + zero_loss(base), entropies, None


def completion_rows(advantages: Tensor, mask: Tensor) -> Tensor:
    """Return the mask of plans to read: those with an advantage, or else the first with tokens."""
    has_tokens = mask.any(1)
    moved = (advantages != 0) & has_tokens
    return moved if moved.any() else has_tokens & (has_tokens.cumsum(0) == 1)


def all_finite(tensors: Sequence[Tensor]) -> bool:
    sums = [tensor.sum() for tensor in tensors]
    return bool(torch.stack(sums).isfinite().all()) if sums else True


def select_rows(inputs: dict[str, Any], rows: Sequence[int]) -> dict[str, Any]:
    size = len(inputs["completion_ids"])
    return {
        name: value[list(rows)]
        if isinstance(value, Tensor) and value.ndim and len(value) == size
        else value
        for name, value in inputs.items()
    }


def zero_loss(model: Any) -> Tensor:
    """Return a zero with a gradient to all parameters, for a batch without plans."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.stack([parameter.flatten()[0] * 0.0 for parameter in trained]).sum()


def shared_rows(
    tokens: Sequence[Sequence[int]], mask: Sequence[Sequence[int]], plan_width: int
) -> list[SharedRow]:
    """Return the batch as rows with equal prompts once.

    The last `plan_width` columns are plans, padded on the right; prompts are padded on the left.
    """
    by_prompt: dict[tuple[int, ...], list[tuple[int, Sequence[int]]]] = {}
    for position, (row, seen) in enumerate(zip(tokens, mask, strict=True)):
        begin = len(row) - plan_width
        prompt = tuple(row[begin - sum(seen[:begin]) : begin])
        plan = row[begin : begin + sum(seen[begin:])]
        if plan:
            by_prompt.setdefault(prompt, []).append((position, plan))
    return [row for prompt, plans in by_prompt.items() for row in _within_bounds(prompt, plans)]


def _within_bounds(
    prompt: Sequence[int], plans: Sequence[tuple[int, Sequence[int]]]
) -> Iterator[SharedRow]:
    taken: list[tuple[int, Sequence[int]]] = []
    length = len(prompt)
    for position, plan in plans:
        if taken and length + len(plan) > MAX_ROW_TOKENS:
            yield SharedRow(prompt, tuple(taken))
            taken, length = [], len(prompt)
        taken.append((position, plan))
        length += len(plan)
    yield SharedRow(prompt, tuple(taken))


def pack_rows(rows: Sequence[SharedRow], max_tokens: int) -> Iterator[list[SharedRow]]:
    """Yield rows of about one length, at most `max_tokens` at a time; a longer row comes alone."""
    taken: list[SharedRow] = []
    for row in sorted(rows, key=lambda row: row.length):
        if taken and (len(taken) + 1) * _round_up(row.length) > max_tokens:
            yield taken
            taken = []
        taken.append(row)
    if taken:
        yield taken


def as_tensors(rows: Sequence[SharedRow], device: torch.device) -> ForwardPass:
    """Return the rows as tensors, padded on the right."""
    width = _round_up(max(row.length for row in rows))
    tokens: list[list[int]] = []
    positions: list[list[int]] = []
    segments: list[list[int]] = []
    sources: list[int] = []
    targets: list[int] = []
    owners: list[int] = []
    offsets: list[int] = []
    for number, row in enumerate(rows):
        begin = len(row.prompt)
        row_tokens, at, part = list(row.prompt), list(range(begin)), [PROMPT] * begin
        for segment, (owner, plan) in enumerate(row.plans, 1):
            before = number * width + len(row_tokens) - 1
            sources += [number * width + begin - 1, *range(before + 1, before + len(plan))]
            targets += plan
            owners += [owner] * len(plan)
            offsets += range(len(plan))
            row_tokens += plan
            at += range(begin, begin + len(plan))
            part += [segment] * len(plan)
        missing = width - len(row_tokens)
        tokens.append(row_tokens + [0] * missing)
        positions.append(at + [0] * missing)
        segments.append(part + [PADDING] * missing)
    return ForwardPass(
        *(
            torch.tensor(values, device=device)
            for values in (tokens, positions, segments, sources, targets, owners, offsets)
        )
    )


def attention_mask(segments: Tensor) -> Tensor:
    """Return which token attends to which: the prompt, earlier ones of its plan, and itself."""
    seen, seeing = segments[:, None, :], segments[:, :, None]
    allowed = ((seen == PROMPT) | (seen == seeing)).tril()
    itself = torch.eye(segments.shape[1], dtype=torch.bool, device=segments.device)
    return (allowed | itself)[:, None]


def completion_logprobs(base: Any, one: ForwardPass, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the log-probability and the entropy of every target."""
    hidden = base.model(
        input_ids=one.tokens,
        position_ids=one.positions,
        attention_mask=attention_mask(one.segments),
        use_cache=False,
    ).last_hidden_state
    before = hidden.flatten(0, 1)[one.sources]
    parts = zip(
        torch.split(before, LOGIT_TOKENS), torch.split(one.targets, LOGIT_TOKENS), strict=True
    )
    found = [
        checkpoint(_chosen_logprobs, base.lm_head, *part, temperature, use_reentrant=False)
        for part in parts
    ]
    logps, entropies = (torch.cat(values) for values in zip(*found, strict=True))
    return logps, entropies


def _chosen_logprobs(
    head: nn.Module, before: Tensor, targets: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """Return the log-probability of the targets and the entropy, from the hidden states before."""
    logits = head(before).float() / temperature
    total = logits.logsumexp(-1)
    logps = logits.gather(-1, targets[:, None])[:, 0] - total
    with torch.no_grad():
        entropies = total - (logits.softmax(-1) * logits).sum(-1)
    return logps, entropies


def _round_up(length: int) -> int:
    return -(-length // WIDTH_MULTIPLE) * WIDTH_MULTIPLE
