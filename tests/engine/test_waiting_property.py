"""For random plans and tool calls: no call is paid for twice, and a tool's result reaches only the
step that called it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from podium.conductors import FixedConductor
from podium.core.errors import Unavailable
from podium.core.request import (
    Message,
    Reply,
    Request,
    ResponseOptions,
    Tool,
    ToolCall,
    ToolResult,
    Usage,
)
from podium.core.run import Run, StepRecord, dump, load
from podium.core.workflow import Workflow
from podium.engine import CallPolicy, RetryPolicy
from podium.engine.runner import ConductorWorker, Options, Runner
from support.harness import FakeWorker
from support.workflows import workflows

CLIENTS = Tool("clients", "the client carries it out", {"type": "object"})
OWN = Tool("own", "Podium carries it out", {"type": "object"})
OPTIONS = Options(response_options=ResponseOptions(tools=(CLIENTS,)))

Habit = tuple[tuple[str, ...], ...]
"""The names of the tools that a step calls, turn by turn."""


class Box:
    tools = (OWN,)

    async def call(self, call: ToolCall) -> ToolResult:
        await asyncio.sleep(0)
        return ToolResult(call.id, result_of(call.id))


def result_of(call_id: str) -> str:
    return f"RESULT<{call_id}>"


@dataclass
class FakeWorkers:
    """Workers that call tools as each step's habit is, and fail now and then."""

    habits: Mapping[str, Habit]
    failures: set[int]
    asked: int = 0
    answered: int = 0
    requests: list[Request] = field(default_factory=list)

    def act(self, request: Request) -> Reply | Exception:
        self.asked += 1
        self.requests.append(request)
        if self.asked in self.failures:
            return Unavailable("busy")
        self.answered += 1
        step, done = owner(request), turns_of(request)
        habit = self.habits.get(step.partition("/")[2], ())
        if done >= len(habit):
            return Reply(f"REPLY<{step}>", Usage(1, 1, 0, 0, 0))
        calls = tuple(
            ToolCall(f"{step}/{done}/{where}/{self.asked}", name, "{}")
            for where, name in enumerate(offered(habit[done], request.tools))
        )
        return Reply("", Usage(1, 1, 0, 0, 0), "tool", calls)

    def runner(self, plan: Workflow, inner: Workflow) -> Runner:
        async def no_sleep(seconds: float) -> None:
            await asyncio.sleep(0)

        fakes = [FakeWorker(name, self.act, can=("tools",)) for name in "abc"]
        return Runner(
            FixedConductor(plan),
            [*fakes, ConductorWorker()],
            call_policy=CallPolicy(RetryPolicy(attempts=99), sleep=no_sleep),
            nested_conductor=FixedConductor(inner),
            toolbox=Box(),
        )


def offered(names: tuple[str, ...], tools: tuple[Tool, ...]) -> list[str]:
    """The tools to call: Podium's own where the client's are not offered."""
    return [name if CLIENTS in tools else "own" for name in names]


def prompt_of(request: Request) -> str:
    return next(m.text for m in reversed(request.messages) if "Your subtask: " in m.text)


def owner(request: Request) -> str:
    """The step that is asked: the question of its run, and its subtask."""
    prompt = prompt_of(request)
    question = re.findall(r"<question[^>]*>\n(.*)\n|\A.*\n\n(.*)\Z", prompt)[0]
    question = "".join(question)
    return f"{question}/{re.findall(r'Your subtask: (.*)', prompt)[0]}"


def turns_of(request: Request) -> int:
    return sum(any(isinstance(p, ToolCall) for p in m.parts) for m in request.messages)


async def performed(runner: Runner) -> tuple[Run, int]:
    """The run, carried to its end, and how often it had to wait."""
    run = await runner.run("why", options=OPTIONS)
    waits = 0
    while run.status == "waiting":
        waits += 1
        results = tuple(ToolResult(call.id, result_of(call.id)) for call in run.waiting_for)
        run = await runner.resume(load(dump(run)), results=results[::-1])
    return run, waits


HABITS: st.SearchStrategy[Habit] = st.lists(
    st.lists(st.sampled_from(["clients", "own"]), min_size=1, max_size=3).map(tuple), max_size=3
).map(tuple)
STEPS = [f"{kind}-{index}" for kind in ("subtask", "inner") for index in range(5)]


@given(
    plan=workflows(["a", "b", "c", "conductor"], longest=5),
    inner=workflows("abc", longest=3, name="inner"),
    habits=st.dictionaries(st.sampled_from(STEPS), HABITS),
    failures=st.sets(st.integers(1, 40), max_size=6),
)
@settings(max_examples=150, deadline=None)
def test_every_call_is_paid_once_and_no_result_reaches_another_step(
    plan: Workflow, inner: Workflow, habits: Mapping[str, Habit], failures: set[int]
) -> None:
    fakes = FakeWorkers(habits, failures)
    run, waits = asyncio.run(performed(fakes.runner(plan, inner)))
    assert (run.status, run.error) == ("answered", None)
    assert len(list(run.calls)) == fakes.asked
    assert run.usage.input_tokens == fakes.answered
    asked = [step for step in _steps(run) if not step.nested]
    final = _final(run)
    for step in asked:
        tools = (CLIENTS, OWN) if step is final else (OWN,)
        habit = [offered(names, tools) for names in habits.get(step.subtask, ())]
        assert _called(step.turns) == habit
    assert fakes.answered == sum(len(_called(step.turns)) + 1 for step in asked)
    own = sum(turn.count("own") for step in _steps(run) for turn in _called(step.turns))
    assert run.spent.calls == fakes.asked + own
    assert waits <= sum(len(habit) for habit in habits.values()) * 6
    for request in fakes.requests:
        _check_nothing_leaked(request)


def _check_nothing_leaked(request: Request) -> None:
    step = owner(request)
    called: set[str] = set()
    for message in request.messages:
        assert "RESULT<" not in message.text
        for part in message.parts:
            if isinstance(part, ToolCall):
                called.add(part.id)
            elif isinstance(part, ToolResult):
                assert part.call_id in called
                assert part.text == result_of(part.call_id)
    assert all(call_id.startswith(f"{step}/") for call_id in called)


def _final(run: Run) -> StepRecord:
    step = run.steps[-1]
    return _final(step.nested[-1]) if step.nested else step


def _steps(run: Run) -> Iterator[StepRecord]:
    for step in run.steps:
        yield step
        for nested in step.nested:
            yield from _steps(nested)


def _called(turns: tuple[Message, ...]) -> list[list[str]]:
    return [
        [part.name for part in turn.parts if isinstance(part, ToolCall)]
        for turn in turns
        if turn.role == "assistant"
    ]
