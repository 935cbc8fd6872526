"""The guardrails of one run: each text passes every guardrail of its stage.

A guardrail that raises, times out or returns no verdict blocks the text, or passes it with
`on_error="pass"`. The message of such an exception is not kept: it may quote the text.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, assert_never

from podium.core.errors import GuardrailBlocked, PodiumError, ReplanRequested, UnknownWorker
from podium.core.request import (
    Image,
    Message,
    Part,
    Request,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    user,
)
from podium.core.run import Attempt, GuardrailAction, GuardrailCheck, GuardrailStage
from podium.core.worker import Worker
from podium.core.workflow import Step, Workflow
from podium.engine.guardrails.base import (
    Block,
    Guardrail,
    GuardrailInput,
    HistoryHook,
    Hook,
    HookFactory,
    Note,
    Pass,
    Redact,
    Replan,
    RestoringHook,
    Verify,
)

if TYPE_CHECKING:
    from podium.engine.calls import BudgetedCaller

MAX_WAITING_RUNS: Final = 10_000


class GuardrailStates(OrderedDict[str, dict[str, Hook]]):
    """The guardrails' state of runs that wait, by the runs' ids."""

    def keep(self, run_id: str, hooks: dict[str, Hook]) -> None:
        """Keep the hooks of a run that waits; the oldest are forgotten where there are too many."""
        self[run_id] = hooks
        while len(self) > MAX_WAITING_RUNS:
            self.popitem(last=False)


MAX_VERIFICATIONS: Final = 4
"""The most calls of a verifier by one guardrail about one text."""


FinalVerdict = Pass | Note | Block | Redact | Replan

OnCheck = Callable[[GuardrailCheck], None]
"""Takes the record of what a guardrail did."""


class GuardrailChain:
    """The guardrails of one run, with their state.

    `new_caller` makes calls that draw on the run's budget. `remembered` are hooks that already saw
    this run, by guardrail name.
    """

    def __init__(
        self,
        guardrails: Sequence[Guardrail],
        workers: Mapping[str, Worker],
        new_caller: Callable[[], BudgetedCaller],
        remembered: Mapping[str, Hook] = {},
    ) -> None:
        self._workers = workers
        self._new_caller = new_caller
        self._hooks = [(item, _hook_of(item, remembered)) for item in guardrails]
        self._by_stage: dict[GuardrailStage, list[tuple[Guardrail, Hook]]] = {}
        for guardrail, hook in self._hooks:
            for stage in guardrail.stages:
                self._by_stage.setdefault(stage, []).append((guardrail, hook))

    @property
    def hooks(self) -> dict[str, Hook]:
        return {
            guardrail.name: hook
            for guardrail, hook in self._hooks
            if isinstance(guardrail.hook, HookFactory)
        }

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(guardrail.name for guardrail, _ in self._hooks)

    def has_stage(self, stage: GuardrailStage) -> bool:
        return stage in self._by_stage

    @property
    def restores(self) -> bool:
        """True if redacted values can be restored."""
        return any(isinstance(hook, RestoringHook) for _, hook in self._hooks)

    def restore(self, text: str) -> str:
        """Restore redacted values, for the asker only; stored runs keep the placeholders."""
        for _, hook in self._hooks:
            if isinstance(hook, RestoringHook):
                text = hook.restore(text)
        return text

    def redact(self, text: str) -> str:
        """Replace restored values by placeholders again."""
        for _, hook in self._hooks:
            if isinstance(hook, RestoringHook):
                text = hook.redact(text)
        return text

    def observe(self, texts: Sequence[str]) -> None:
        for _, hook in self._hooks:
            if isinstance(hook, HistoryHook):
                for text in texts:
                    hook.observe(text)

    async def check_question(
        self, run_id: str, question: str, history: tuple[Message, ...], on_check: OnCheck
    ) -> tuple[str, tuple[Message, ...]]:
        """Check the question and the conversation; raise `GuardrailBlocked`."""
        item = GuardrailInput(stage="question", text=question, run_id=run_id, question=question)
        question = await self.check(item, on_check)
        item = replace(item, question=question)
        return question, await self.check_messages(item, history, on_check)

    async def check_messages(
        self, item: GuardrailInput, messages: Sequence[Message], on_check: OnCheck
    ) -> tuple[Message, ...]:
        """Check every text of the messages; messages left empty are dropped."""
        left = [await self._check_message(item, message, on_check) for message in messages]
        return tuple(
            after
            for before, after in zip(messages, left, strict=True)
            if after.parts or not before.parts
        )

    async def check_workflow(
        self, item: GuardrailInput, workflow: Workflow, on_check: OnCheck
    ) -> Workflow:
        steps: list[Step] = []
        for step in workflow.steps:
            text = await self.check(replace(item, text=step.subtask), on_check)
            steps.append(step if text == step.subtask else replace(step, subtask=text))
        return Workflow(tuple(steps))

    async def _check_message(
        self, item: GuardrailInput, message: Message, on_check: OnCheck
    ) -> Message:
        parts: list[Part] = []
        for part in message.parts:
            match part:
                case Text() | ToolResult():
                    text = await self.check(replace(item, text=part.text), on_check)
                    parts.append(part if text == part.text else replace(part, text=text))
                case ToolCall():
                    text = await self.check(replace(item, text=part.arguments), on_check)
                    same = text == part.arguments
                    parts.append(part if same else replace(part, arguments=text))
                case Thinking():
                    # Thinking goes back unchanged or not at all: its opaque state may repeat it.
                    text = (
                        await self.check(replace(item, text=part.text), on_check)
                        if part.text
                        else ""
                    )
                    if text == part.text:
                        parts.append(part)
                case Image():
                    parts.append(part)
                case _:
                    assert_never(part)
        return replace(message, parts=tuple(parts))

    async def check(self, item: GuardrailInput, on_check: OnCheck, round_: int = 0) -> str:
        """Return the text as guardrails leave it; raise `GuardrailBlocked` or `ReplanRequested`."""
        for guardrail, hook in self._by_stage.get(item.stage, ()):
            attempts: list[Attempt] = []
            try:
                verdict = await self._decide(guardrail, hook, item, attempts)
            except BaseException:  # the run was stopped; a verifier's cost stays on record
                if attempts:
                    on_check(
                        _record(guardrail, item, Block("the run was stopped"), attempts, round_)
                    )
                raise
            if isinstance(verdict, Pass) and not attempts and not verdict.reason:
                continue
            on_check(_record(guardrail, item, verdict, attempts, round_))
            match verdict:
                case Redact(text=text):
                    item = replace(item, text=text)
                case Block(reason=reason):
                    raise GuardrailBlocked(guardrail.name, item.stage, reason)
                case Replan(reason=reason):
                    raise ReplanRequested(guardrail.name, item.stage, reason)
                case Pass() | Note():
                    pass
                case _:
                    assert_never(verdict)
        return item.text

    async def _decide(
        self, guardrail: Guardrail, hook: Hook, item: GuardrailInput, attempts: list[Attempt]
    ) -> FinalVerdict:
        left = self._new_caller().seconds_left
        seconds = (
            guardrail.timeout_seconds if left is None else min(guardrail.timeout_seconds, left)
        )
        try:
            async with asyncio.timeout(seconds):
                return await self._ask_hook(hook, item, attempts)
        except TimeoutError:
            fault = f"it took more than {seconds:g} s"
            if seconds < guardrail.timeout_seconds:
                fault = "the run's budget is spent: no seconds are left"
        except PodiumError as error:
            fault = str(error)
        except Exception as error:  # noqa: BLE001 - the border: a hook is user code
            fault = f"it raised {type(error).__name__}"
        fault = f"it could not decide: {fault}"
        return Pass(fault) if guardrail.on_error == "pass" else Block(fault)

    async def _ask_hook(
        self, hook: Hook, item: GuardrailInput, attempts: list[Attempt]
    ) -> FinalVerdict:
        returned = hook(item)
        verdict: object = await returned if inspect.isawaitable(returned) else returned
        for _ in range(MAX_VERIFICATIONS):
            if not isinstance(verdict, Verify):
                break
            verdict = verdict.then(await self._verify(verdict, attempts))
        if isinstance(verdict, Replan) and item.stage == "question":
            raise _NoVerdict("there is no plan to replace yet")
        if isinstance(verdict, FinalVerdict):
            return verdict
        repeats = f"it asked its verifier more than {MAX_VERIFICATIONS} times"
        raise _NoVerdict(repeats if isinstance(verdict, Verify) else "it returned no verdict")

    async def _verify(self, verify: Verify, attempts: list[Attempt]) -> str:
        worker = self._workers.get(verify.worker)
        if worker is None:
            raise UnknownWorker(verify.worker, tuple(self._workers))
        caller = self._new_caller()
        try:
            reply = await caller(worker, Request((user(verify.prompt),)))
        finally:
            attempts.extend(caller.attempts)
        return reply.text


def _hook_of(guardrail: Guardrail, remembered: Mapping[str, Hook]) -> Hook:
    if not isinstance(guardrail.hook, HookFactory):
        return guardrail.hook
    return remembered.get(guardrail.name) or guardrail.hook.for_run()


class _NoVerdict(PodiumError):
    """A hook's fault, with a message that may be kept."""


def _record(
    guardrail: Guardrail,
    item: GuardrailInput,
    verdict: FinalVerdict,
    attempts: Sequence[Attempt],
    round_: int,
) -> GuardrailCheck:
    return GuardrailCheck(
        guardrail=guardrail.name,
        stage=item.stage,
        action=_ACTIONS[type(verdict)],
        reason=verdict.what if isinstance(verdict, Redact) else verdict.reason,
        round=round_,
        step=item.step,
        worker=item.worker,
        attempts=tuple(attempts),
    )


_ACTIONS: Final[Mapping[type[FinalVerdict], GuardrailAction]] = {
    Pass: "passed",
    Note: "noted",
    Redact: "redacted",
    Block: "blocked",
    Replan: "replanned",
}
