"""The guardrails of one run at work: each text goes past every one that looks at its place.

What a guardrail raises, what it takes too long over, and what it returns that is no verdict, is a
fault of its own: the text is blocked, or let through where `on_error` says so, and the run says
why. The words of such an exception are not kept, for they may repeat what was checked.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol, assert_never

from podium.core.errors import GuardrailBlocked, PodiumError, ReplanDemanded, UnknownWorker
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
from podium.core.run_records import Attempt, Check, Deed, Place
from podium.core.worker import Caller, Worker
from podium.core.workflow import Step, Workflow
from podium.engine.guardrails.base import (
    Block,
    Guardrail,
    GuardrailInput,
    Hook,
    Note,
    Pass,
    PerRun,
    Recalling,
    Redact,
    Replan,
    Restoring,
    Verify,
)

MOST_REMEMBERED: Final = 10_000


class HookMemory:
    """The hooks of runs that wait, by the guardrails' names."""

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        self._most = most
        self._hooks: OrderedDict[str, dict[str, Hook]] = OrderedDict()

    def keep(self, run_id: str, hooks: dict[str, Hook]) -> None:
        """Remember the hooks of a run that waits."""
        self._hooks[run_id] = hooks
        while len(self._hooks) > self._most:
            self._hooks.popitem(last=False)

    def take(self, run_id: str) -> dict[str, Hook]:
        """The hooks of a run that goes on, which are not remembered any longer."""
        return self._hooks.pop(run_id, {})


MOST_QUESTIONS: Final = 4
"""How often a guardrail may ask a verifier about one text."""


class Metered(Caller, Protocol):
    """A caller that records what it does."""

    attempts: list[Attempt]


Settled = Pass | Note | Block | Redact | Replan
"""A verdict for good."""

Keep = Callable[[Check], None]
"""Takes what a guardrail did."""


class Guard:
    """The guardrails of one run, with what they remember of it. `metered` makes a caller that draws
    on the run's budget and knows whom it must not ask. `remembered` are hooks that looked at this
    very run before, by the guardrails' names."""

    def __init__(
        self,
        guardrails: Sequence[Guardrail],
        workers: Mapping[str, Worker],
        metered: Callable[[], Metered],
        remembered: Mapping[str, Hook] = {},
    ) -> None:
        self._workers = workers
        self._metered = metered
        self._hooks = [(each, _hook_of(each, remembered)) for each in guardrails]
        self._at: dict[Place, list[tuple[Guardrail, Hook]]] = {}
        for guardrail, hook in self._hooks:
            for place in guardrail.places:
                self._at.setdefault(place, []).append((guardrail, hook))

    @property
    def hooks(self) -> dict[str, Hook]:
        """The hooks that are this run's own, by the guardrails' names."""
        return {each.name: hook for each, hook in self._hooks if isinstance(each.hook, PerRun)}

    @property
    def names(self) -> tuple[str, ...]:
        """The guardrails that are in force."""
        return tuple(guardrail.name for guardrail, _ in self._hooks)

    def looks_at(self, place: Place) -> bool:
        """Whether any guardrail looks there."""
        return place in self._at

    @property
    def restores(self) -> bool:
        """Whether what was taken out of the question can be put back."""
        return any(isinstance(hook, Restoring) for _, hook in self._hooks)

    def restore(self, text: str) -> str:
        """The text as whoever asked is to have it. What is kept of a run never went through
        here."""
        for _, hook in self._hooks:
            if isinstance(hook, Restoring):
                text = hook.restore(text)
        return text

    def marked(self, text: str) -> str:
        """The text with marks in place of what could be put back: a run may come back as whoever
        asked had it."""
        for _, hook in self._hooks:
            if isinstance(hook, Restoring):
                text = hook.mark(text)
        return text

    def recall(self, texts: Sequence[str]) -> None:
        """Have hooks know what was said before, where a run goes on."""
        for _, hook in self._hooks:
            if isinstance(hook, Recalling):
                for text in texts:
                    hook.recall(text)

    async def question(
        self, run_id: str, question: str, history: tuple[Message, ...], keep: Keep
    ) -> tuple[str, tuple[Message, ...]]:
        """The question and the conversation before it as they may go on; raises
        `GuardrailBlocked`."""
        checked = GuardrailInput(place="question", text=question, run_id=run_id, question=question)
        question = await self.look(checked, keep)
        checked = replace(checked, question=question)
        return question, await self.messages(checked, history, keep)

    async def messages(
        self, checked: GuardrailInput, messages: Sequence[Message], keep: Keep
    ) -> tuple[Message, ...]:
        """Those messages with every text in them looked at as `checked` says; one of which nothing
        is left is left out."""
        left = [await self._message(checked, message, keep) for message in messages]
        return tuple(
            after
            for before, after in zip(messages, left, strict=True)
            if after.parts or not before.parts
        )

    async def workflow(self, checked: GuardrailInput, workflow: Workflow, keep: Keep) -> Workflow:
        """A workflow that came with the question, with every subtask looked at as that."""
        steps: list[Step] = []
        for step in workflow.steps:
            text = await self.look(replace(checked, text=step.subtask), keep)
            steps.append(step if text == step.subtask else replace(step, subtask=text))
        return Workflow(tuple(steps))

    async def _message(self, checked: GuardrailInput, message: Message, keep: Keep) -> Message:
        parts: list[Part] = []
        for part in message.parts:
            match part:
                case Text() | ToolResult():
                    text = await self.look(replace(checked, text=part.text), keep)
                    parts.append(part if text == part.text else replace(part, text=text))
                case ToolCall():
                    text = await self.look(replace(checked, text=part.arguments), keep)
                    same = text == part.arguments
                    parts.append(part if same else replace(part, arguments=text))
                case Thinking():
                    # A provider takes thinking back as it gave it or not at all, and its opaque
                    # state may repeat the words.
                    text = (
                        await self.look(replace(checked, text=part.text), keep) if part.text else ""
                    )
                    if text == part.text:
                        parts.append(part)
                case Image():
                    parts.append(part)
                case _:
                    assert_never(part)
        return replace(message, parts=tuple(parts))

    async def look(self, checked: GuardrailInput, keep: Keep, round_: int = 0) -> str:
        """The text as it may go on; raises `GuardrailBlocked`, and `ReplanDemanded` where another
        plan might do better."""
        for guardrail, hook in self._at.get(checked.place, ()):
            attempts: list[Attempt] = []
            try:
                verdict = await self._settled(guardrail, hook, checked, attempts)
            except BaseException:  # the run was stopped; what a verifier was paid stays on it
                if attempts:
                    keep(_check(guardrail, checked, Block("the run was stopped"), attempts, round_))
                raise
            if isinstance(verdict, Pass) and not attempts and not verdict.reason:
                continue
            keep(_check(guardrail, checked, verdict, attempts, round_))
            match verdict:
                case Redact(text=text):
                    checked = replace(checked, text=text)
                case Block(reason=reason):
                    raise GuardrailBlocked(guardrail.name, checked.place, reason)
                case Replan(reason=reason):
                    raise ReplanDemanded(guardrail.name, checked.place, reason)
                case Pass() | Note():
                    pass
                case _:
                    assert_never(verdict)
        return checked.text

    async def _settled(
        self, guardrail: Guardrail, hook: Hook, checked: GuardrailInput, attempts: list[Attempt]
    ) -> Settled:
        try:
            async with asyncio.timeout(guardrail.seconds):
                return await self._decided(hook, checked, attempts)
        except TimeoutError:
            fault = f"it took more than {guardrail.seconds:g} s"
        except PodiumError as error:
            fault = str(error)
        except Exception as error:  # noqa: BLE001 - the border: a hook is anyone's
            fault = f"it raised {type(error).__name__}"
        fault = f"it could not decide: {fault}"
        return Pass(fault) if guardrail.on_error == "pass" else Block(fault)

    async def _decided(
        self, hook: Hook, checked: GuardrailInput, attempts: list[Attempt]
    ) -> Settled:
        returned = hook(checked)
        verdict: object = await returned if inspect.isawaitable(returned) else returned
        for _ in range(MOST_QUESTIONS):
            if not isinstance(verdict, Verify):
                break
            verdict = verdict.then(await self._verified(verdict, attempts))
        if isinstance(verdict, Replan) and checked.place == "question":
            raise _NoVerdict("there is no plan yet that could be made again")
        if isinstance(verdict, Settled):
            return verdict
        asked = "it asks its verifier again and again"
        raise _NoVerdict(asked if isinstance(verdict, Verify) else "it returned no verdict")

    async def _verified(self, verify: Verify, attempts: list[Attempt]) -> str:
        worker = self._workers.get(verify.worker)
        if worker is None:
            raise UnknownWorker(verify.worker, tuple(self._workers))
        call = self._metered()
        try:
            reply = await call(worker, Request((user(verify.prompt),)))
        finally:
            attempts.extend(call.attempts)
        return reply.text


def _hook_of(guardrail: Guardrail, remembered: Mapping[str, Hook]) -> Hook:
    if not isinstance(guardrail.hook, PerRun):
        return guardrail.hook
    return remembered.get(guardrail.name) or guardrail.hook.for_run()


class _NoVerdict(PodiumError):
    """A hook's fault, in words that may be kept."""


def _check(
    guardrail: Guardrail,
    checked: GuardrailInput,
    verdict: Settled,
    attempts: Sequence[Attempt],
    round_: int,
) -> Check:
    deed, reason = _deed(verdict)
    return Check(
        guardrail=guardrail.name,
        place=checked.place,
        deed=deed,
        reason=reason,
        round=round_,
        step=checked.step,
        worker=checked.worker,
        attempts=tuple(attempts),
    )


def _deed(verdict: Settled) -> tuple[Deed, str]:
    match verdict:
        case Pass(reason=reason):
            return "passed", reason
        case Note(reason=reason):
            return "noted", reason
        case Redact(what=what):
            return "redacted", what
        case Block(reason=reason):
            return "blocked", reason
        case Replan(reason=reason):
            return "replanned", reason
        case _:
            assert_never(verdict)
