"""What guardrails leave of a step's replies, as the engine has them looked at.

Who looks, and what for, is not known here: that is `podium.guardrails`, which the scope of an
execution brings along as an `Inspection`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from podium.core.errors import GuardrailBlocked
from podium.core.request import Reply
from podium.core.run import StepRecord
from podium.core.run_records import Check
from podium.core.structured_output import misfit_unquoted

if TYPE_CHECKING:
    from podium.engine.execution import Execution

Keep = Callable[[Check], None]
"""Takes what a guardrail did."""


class Inspection(Protocol):
    """Who looks at what workers say before anybody else gets it. Each method gives the text as it
    may go on, hands what was done to it to `keep`, and raises `GuardrailBlocked`. `answers` says
    whether final replies are looked at as answers, too."""

    answers: bool

    async def reply(self, text: str, step: int, worker: str, keep: Keep) -> str:
        """A worker's reply, or what it calls a tool with."""
        ...

    async def answer(
        self,
        text: str,
        step: int,
        worker: str,
        others: Sequence[StepRecord],
        keep: Keep,
    ) -> str:
        """The final reply; `others` are the steps that have ended before it."""
        ...


def holds_answer(execution: Execution) -> bool:
    """Whether nothing of the final reply may be told before it was looked at as a whole."""
    inspection = execution.inspection
    return inspection is not None and inspection.answers


async def inspected(
    reply: Reply, inspection: Inspection, step: int, worker: str, keep: Keep
) -> Reply:
    """The reply as guardrails leave it. They do not see thinking, so nobody else does: of it only
    what the provider needs to go on after the use of tools is kept."""

    async def left(text: str) -> str:
        return await inspection.reply(text, step, worker, keep)

    calls = [replace(call, arguments=await left(call.arguments)) for call in reply.tool_calls]
    needed = tuple(part for part in reply.thinking if part.opaque) if calls else ()
    text = await left(reply.text) if reply.text else ""
    return replace(reply, text=text, tool_calls=tuple(calls), thinking=needed)


async def inspected_answer(
    reply: Reply, execution: Execution, step: int, worker: str, keep: Keep
) -> Reply:
    """The final reply as guardrails of answers leave it; where what they leave does not fit the
    form that is demanded, the last of them that did something has blocked it."""
    inspection = execution.inspection
    assert inspection is not None, "an answer is held for somebody"
    done: list[Check] = []

    def kept(check: Check) -> None:
        done.append(check)
        keep(check)

    others = [execution.records[index] for index in sorted(execution.records)]
    text = await inspection.answer(reply.text, step, worker, others, kept)
    schema = execution.assignment.response_options.schema
    if text != reply.text and schema is not None and (problem := misfit_unquoted(text, schema)):
        why = f"what it left of it does not fit: {problem}"
        raise GuardrailBlocked(done[-1].guardrail, "answer", why)
    return replace(reply, text=text, thinking=())
