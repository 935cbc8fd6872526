"""How likely plans are, with the prompt that many of them share read only once.

The rollouts of one question begin with the same prompt, which is most of what there is to read.
So a prompt and the plans that were written to it are laid out as one row: the prompt, then one
plan after another, each of which sees the prompt and itself and none of the others. The figures
are the same as if every plan had its own copy of the prompt.

A plan that earned as much as the others of its question moves nothing, and is not read at all
where nothing but the advantage would. The gradient is the same, in a fraction of the time; the
entropy that TRL writes down is that of the plans that are read.

Rows go through the model in passes of at most so many tokens; of these only the results are kept,
and on the way back a pass is taken once more, so that memory holds one pass at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from trl import GRPOTrainer

LONGEST_ROW: Final = 4096
"""Plans that would make a row longer than this begin another one, with the prompt once more."""

GRAIN: Final = 8
"""Rows are as wide as a multiple of this, as the card's attention wants its masks."""

PADDING: Final = -1
PROMPT: Final = 0
"""The segments of a row that are no plan; plans are counted from 1."""


@dataclass(frozen=True, slots=True)
class SharedRow:
    """A prompt and some of the plans that were written to it, each with its place in the batch."""

    prompt: Sequence[int]
    plans: tuple[tuple[int, Sequence[int]], ...]

    @property
    def length(self) -> int:
        """The number of tokens."""
        return len(self.prompt) + sum(len(plan) for _, plan in self.plans)


@dataclass(frozen=True, slots=True)
class ForwardPass:
    """Rows side by side as tensors. `sources` are the places, in all rows one after another, at
    which the `targets` are foretold; `owners` and `offsets` say which token of which plan each
    of these is."""

    tokens: Tensor
    positions: Tensor
    segments: Tensor
    sources: Tensor
    targets: Tensor
    owners: Tensor
    offsets: Tensor


class SharedPromptTrainer(GRPOTrainer):  # type: ignore[misc]
    """TRL's trainer, for which prompts are shared. `most_tokens` go through the model at once."""

    def __init__(self, *, most_tokens: int, **rest: Any) -> None:
        super().__init__(**rest)
        self._most_tokens = most_tokens
        self._is_read: Tensor | None = None

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        """Compute the loss of one batch, as TRL requires."""
        only_by_advantage = self.beta == 0.0 and self.args.entropy_coef == 0.0
        if only_by_advantage and inputs.get("old_per_token_logps") is None:
            self._is_read = completion_rows(inputs["advantages"], inputs["completion_mask"])
        try:
            loss: Tensor = super()._compute_loss(model, inputs)
        finally:
            self._is_read = None
        return loss

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        *_: Any,
        **__: Any,
    ) -> tuple[Tensor, Tensor, None]:
        """What TRL asks: of every token of every plan its log-probability and the entropy there.
        For a plan that is not read these are zero, and what the others have on average."""
        unwrapped = self.accelerator.unwrap_model(model)
        base = getattr(unwrapped, "get_base_model", lambda: unwrapped)()
        logps = torch.zeros(len(input_ids), logits_to_keep, device=input_ids.device)
        entropies = torch.zeros_like(logps)
        if self._is_read is not None:
            attention_mask = attention_mask * self._is_read[:, None]
        rows = shared_rows(input_ids.tolist(), attention_mask.tolist(), logits_to_keep)
        for part in pack_rows(rows, self._most_tokens):
            one = as_tensors(part, input_ids.device)
            with self.accelerator.autocast():
                found, spread = checkpoint(
                    completion_logprobs, base, one, self.temperature, use_reentrant=False
                )
            where = (one.owners, one.offsets)
            logps = logps.index_put(where, found)
            entropies = entropies.index_put(where, spread)
        if self._is_read is not None and rows:
            tokens = sum(len(plan) for row in rows for _, plan in row.plans)
            usual = entropies.detach().sum() / tokens
            entropies = torch.where(self._is_read[:, None], entropies, usual)
        return logps if rows else logps + nothing(base), entropies, None


def completion_rows(advantages: Tensor, mask: Tensor) -> Tensor:
    """Which plans move the policy. Where none does, it is the first that has a token to be read, so
    that there is a gradient and an entropy."""
    has_tokens = mask.any(1)
    moved = (advantages != 0) & has_tokens
    return moved if moved.any() else has_tokens & (has_tokens.cumsum(0) == 1)


def nothing(model: Any) -> Tensor:
    """Zero, to which everything that is trained has led: where every plan was cut off and none is
    to be read, there still is a gradient."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.stack([parameter.flatten()[0] * 0.0 for parameter in trained]).sum()


def shared_rows(
    tokens: Sequence[Sequence[int]], mask: Sequence[Sequence[int]], plan_width: int
) -> list[SharedRow]:
    """The batch as rows, in which equal prompts stand once. The last `plan_width` columns are
    plans, padded on the right; what is before them is prompts, padded on the left."""
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
        if taken and length + len(plan) > LONGEST_ROW:
            yield SharedRow(prompt, tuple(taken))
            taken, length = [], len(prompt)
        taken.append((position, plan))
        length += len(plan)
    yield SharedRow(prompt, tuple(taken))


def pack_rows(rows: Sequence[SharedRow], most_tokens: int) -> Iterator[list[SharedRow]]:
    """Rows of about one length together, no more at a time than that; a row that is longer comes
    alone."""
    taken: list[SharedRow] = []
    for row in sorted(rows, key=lambda row: row.length):
        if taken and (len(taken) + 1) * _rounded(row.length) > most_tokens:
            yield taken
            taken = []
        taken.append(row)
    if taken:
        yield taken


def as_tensors(rows: Sequence[SharedRow], device: torch.device) -> ForwardPass:
    """The rows side by side, padded on the right."""
    width = _rounded(max(row.length for row in rows))
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
    """Which token sees which: those before it in its own plan, and the prompt; and itself, so
    that padding sees something."""
    seen, seeing = segments[:, None, :], segments[:, :, None]
    allowed = ((seen == PROMPT) | (seen == seeing)).tril()
    itself = torch.eye(segments.shape[1], dtype=torch.bool, device=segments.device)
    return (allowed | itself)[:, None]


def completion_logprobs(base: Any, one: ForwardPass, temperature: float) -> tuple[Tensor, Tensor]:
    """The log-probability of every target, and the entropy of what could have stood there."""
    hidden = base.model(
        input_ids=one.tokens,
        position_ids=one.positions,
        attention_mask=attention_mask(one.segments),
        use_cache=False,
    ).last_hidden_state
    logits = base.lm_head(hidden.flatten(0, 1)[one.sources]).float() / temperature
    total = logits.logsumexp(-1)
    logps = logits.gather(-1, one.targets[:, None])[:, 0] - total
    entropies = total - (logits.softmax(-1) * logits).sum(-1)
    return logps, entropies


def _rounded(length: int) -> int:
    return -(-length // GRAIN) * GRAIN
