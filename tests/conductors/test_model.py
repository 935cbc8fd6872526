from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace

import pytest

from podium.conductors import (
    Conductor,
    ModelConductor,
    PlanFormat,
    PlanningContext,
    PromptStyle,
    plan,
)
from podium.conductors.builtin import plan_format_for
from podium.conductors.prompt import Prompt
from podium.core.errors import BudgetExhausted, MalformedPlan, PodiumError, Unavailable, UsageError
from podium.core.pool import Capability, Pool, WorkerProfile
from podium.core.request import Price, Reply, Request
from podium.core.worker import Worker
from podium.core.workflow import Step, Workflow
from support.rounds import answered

POOL = Pool(
    (
        WorkerProfile(name="a", description="quick", price=Price(input=1, output=1)),
        WorkerProfile(name="b", description="careful", price=Price(input=9, output=9)),
        WorkerProfile(name="c", description="fluent", price=Price(input=3, output=3)),
    )
)
SITUATION = PlanningContext(question="Why is the sky blue?", pool=POOL)
PLANNED = Workflow((Step("c", "Explain it"), Step("a", "Check it", access="all")))
LATER = replace(SITUATION, rounds=(answered(PLANNED),))
LISTS = 'model_id = [2, 0]\nsubtasks = ["Explain it", "Check it"]\naccess_list = [[], ["all"]]'
STEP_BY_STEP = plan.write(PLANNED, POOL, layout="step-by-step")
ACCEPTANCE = "model_id = []\nsubtasks = []\naccess_list = []"
TOO_LONG = LISTS.replace("[2, 0]", "[2, 0, 1]")
BEST_ALONE = Workflow((Step("b", SITUATION.question),))


class Planner(Worker):
    """Writes the given texts in turn, or raises the given errors, and keeps the requests."""

    def __init__(
        self,
        *script: str | PodiumError,
        capabilities: frozenset[Capability] = frozenset(),
        provider: str = "",
    ) -> None:
        self.profile = WorkerProfile(name="planner", capabilities=capabilities, provider=provider)
        self.requests: list[Request] = []
        self._script = list(script)

    async def reply(self, request: Request) -> Reply:
        self.requests.append(request)
        entry = self._script.pop(0)
        if isinstance(entry, PodiumError):
            raise entry
        return Reply(entry)


async def call(
    worker: Worker, request: Request, on_delta: object = None, on_retry: object = None
) -> Reply:
    return await worker.reply(request)


async def test_the_plan_that_was_written_is_the_plan() -> None:
    planner = Planner(f"I think so.\n{LISTS}")
    found = await ModelConductor(planner).plan(SITUATION, call)
    assert found.workflow == PLANNED
    assert found.text == f"I think so.\n{LISTS}"
    assert found.warnings == ()
    assert planner.requests[0].messages == Prompt(plan_format="json").messages(SITUATION)


async def test_planning_goes_through_the_caller_and_never_around_it() -> None:
    planner = Planner()

    async def answering(
        worker: Worker, request: Request, on_delta: object = None, on_retry: object = None
    ) -> Reply:
        assert worker is planner
        return Reply(LISTS)

    found = await ModelConductor(planner).plan(SITUATION, answering)
    assert found.workflow == PLANNED
    assert planner.requests == []


async def test_text_after_the_lists_is_tolerated_with_a_warning() -> None:
    found = await ModelConductor(Planner(f"{LISTS}\nI hope this helps!")).plan(SITUATION, call)
    assert found.workflow == PLANNED
    assert len(found.warnings) == 1


async def test_a_malformed_plan_is_asked_for_once_more_in_the_parsers_words() -> None:
    planner = Planner(TOO_LONG, LISTS)
    found = await ModelConductor(planner).plan(SITUATION, call)
    assert found.workflow == PLANNED
    assert found.text == LISTS
    first, second = planner.requests
    assert second.messages[: len(first.messages)] == first.messages
    written, asking = second.messages[len(first.messages) :]
    assert (written.role, written.text) == ("assistant", TOO_LONG)
    with pytest.raises(MalformedPlan) as problem:
        plan.parse(TOO_LONG, POOL)
    assert str(problem.value) in asking.text
    assert found.warnings == (f"model(planner) wrote a malformed plan: {problem.value}",)


async def test_after_two_malformed_plans_the_best_worker_gets_the_unaltered_question() -> None:
    planner = Planner("I cannot.", "Really not.")
    found = await ModelConductor(planner).plan(SITUATION, call)
    assert len(planner.requests) == 2
    assert found.workflow == BEST_ALONE
    assert found.text == "Really not."
    assert found.warnings[-1] == "so b answers the question alone"
    assert len(found.warnings) == 3


async def test_a_worker_that_fails_leaves_the_question_to_the_best_worker() -> None:
    found = await ModelConductor(Planner(Unavailable("overloaded"))).plan(SITUATION, call)
    assert found.workflow == BEST_ALONE
    assert found.warnings == (
        "model(planner) could not plan: overloaded",
        "so b answers the question alone",
    )


async def test_the_worker_named_as_fallback_answers_alone_where_there_is_no_plan() -> None:
    conductor = ModelConductor(Planner(Unavailable("overloaded")), fallback="c")
    found = await conductor.plan(SITUATION, call)
    assert found.workflow == Workflow((Step("c", SITUATION.question),))
    assert found.warnings[-1] == "so c answers the question alone"


async def test_best_worker_answers_if_the_fallback_is_excluded() -> None:
    conductor = ModelConductor(Planner("no", "no"), fallback="c")
    found = await conductor.plan(replace(SITUATION, pool=POOL.without({"c"})), call)
    assert found.workflow == BEST_ALONE


async def test_a_worker_that_fails_when_asked_again_does_the_same() -> None:
    found = await ModelConductor(Planner("no", Unavailable("gone"))).plan(SITUATION, call)
    assert found.workflow == BEST_ALONE
    assert found.text == "no"


@pytest.mark.parametrize("script", [(), ("no plan",)])
async def test_a_spent_budget_passes_through(script: tuple[str, ...]) -> None:
    planner = Planner(*script, BudgetExhausted("calls", 1))
    with pytest.raises(BudgetExhausted):
        await ModelConductor(planner).plan(SITUATION, call)


async def test_three_empty_lists_accept_the_answer_in_later_rounds_only() -> None:
    found = await ModelConductor(Planner(ACCEPTANCE)).plan(LATER, call)
    assert found.workflow is None
    assert found.warnings == ()
    first = await ModelConductor(Planner(ACCEPTANCE, LISTS)).plan(SITUATION, call)
    assert first.workflow == PLANNED


async def test_a_later_round_may_plan_again() -> None:
    found = await ModelConductor(Planner(LISTS)).plan(LATER, call)
    assert found.workflow == PLANNED


@pytest.mark.parametrize("script", [("no", "no"), (Unavailable("overloaded"),)])
async def test_in_later_rounds_the_fallback_is_to_accept(
    script: tuple[str | PodiumError, ...],
) -> None:
    found = await ModelConductor(Planner(*script)).plan(LATER, call)
    assert found.workflow is None
    assert "accepted" in found.warnings[-1]


@pytest.mark.parametrize("plan_format", ["lists", "json"])
@pytest.mark.parametrize("returns_the_opener", [True, False])
async def test_a_reply_that_was_begun_is_read_from_its_beginning(
    returns_the_opener: bool, plan_format: PlanFormat
) -> None:
    opener = Prompt(plan_format=plan_format).opener(SITUATION)
    written = f" Well.\n{LISTS}" if plan_format == "lists" else STEP_BY_STEP.removeprefix(opener)
    planner = Planner(
        opener + written if returns_the_opener else written,
        capabilities=frozenset({"prefill"}),
    )
    found = await ModelConductor(planner, plan_format=plan_format).plan(SITUATION, call)
    assert planner.requests[0].prefill == opener
    assert found.text == opener + written
    assert found.workflow == PLANNED


async def test_later_rounds_are_begun_differently_and_reasks_not_at_all() -> None:
    planner = Planner("no", ACCEPTANCE, capabilities=frozenset({"prefill"}))
    await ModelConductor(planner, plan_format="lists").plan(LATER, call)
    assert planner.requests[0].prefill == Prompt().opener(LATER)
    assert planner.requests[1].prefill == ""


async def test_no_reply_is_begun_where_the_worker_cannot_continue_it() -> None:
    planner = Planner(LISTS)
    await ModelConductor(planner).plan(SITUATION, call)
    assert planner.requests[0].prefill == ""


@pytest.mark.parametrize("context", [SITUATION, LATER])
async def test_a_local_model_is_held_to_the_lists_by_a_grammar(context: PlanningContext) -> None:
    planner = Planner(LISTS, provider="llamacpp", capabilities=frozenset({"prefill", "json"}))
    found = await ModelConductor(planner).plan(context, call)
    request = planner.requests[0]
    may_accept = bool(context.rounds)
    begun = "model_id =" if may_accept else "model_id = ["
    assert request.prefill == begun
    grammar = plan.grammar(POOL, context.max_steps, may_accept=may_accept, begun=begun)
    assert request.grammar == grammar
    assert request.schema is None
    assert request.messages == Prompt("full", "grammar").messages(context)
    assert found.workflow == PLANNED


async def test_a_very_small_model_only_chooses_the_worker() -> None:
    planner = Planner(LISTS, provider="llamacpp")
    await ModelConductor(planner, prompt="compact").plan(SITUATION, call)
    request = planner.requests[0]
    assert request.grammar == plan.grammar(POOL, 5, subtask=SITUATION.question)
    assert request.messages == Prompt("compact", "grammar").messages(SITUATION)


@pytest.mark.parametrize("context", [SITUATION, LATER])
async def test_a_trained_model_plans_step_by_step(context: PlanningContext) -> None:
    planner = Planner(STEP_BY_STEP, provider="llamacpp")
    found = await ModelConductor(planner, prompt="trained").plan(context, call)
    request = planner.requests[0]
    assert request.grammar == plan.grammar(
        POOL,
        5,
        may_accept=bool(context.rounds),
        max_subtask_chars=300,
        layout="step-by-step",
    )
    assert request.messages == Prompt("trained", "grammar").messages(context)
    assert found.workflow == PLANNED
    assert found.warnings == ()


async def test_a_trained_model_accepts_in_its_own_order() -> None:
    planner = Planner(plan.write_acceptance("step-by-step"), provider="llamacpp")
    found = await ModelConductor(planner, prompt="trained").plan(LATER, call)
    assert found.workflow is None
    assert found.warnings == ()


@pytest.mark.parametrize("capabilities", [{"json"}, {"prefill"}, {"json", "prefill"}, ()])
async def test_a_trained_model_elsewhere_writes_the_bare_plan(
    capabilities: Collection[Capability],
) -> None:
    planner = Planner(STEP_BY_STEP, capabilities=frozenset(capabilities))
    found = await ModelConductor(planner, prompt="trained").plan(SITUATION, call)
    request = planner.requests[0]
    assert (request.schema, request.grammar, request.prefill) == (None, "", "")
    assert found.workflow == PLANNED
    assert found.text == STEP_BY_STEP


def test_a_trained_model_is_never_given_a_schema() -> None:
    with pytest.raises(UsageError, match="needs no schema"):
        ModelConductor(Planner(), prompt="trained", plan_format="json")


@pytest.mark.parametrize("style", ["compact", "trained"])
async def test_a_very_small_model_is_not_asked_to_plan_for_a_long_question(
    style: PromptStyle,
) -> None:
    planner = Planner(LISTS, provider="llamacpp")
    long = replace(SITUATION, question="why? " * 200)
    found = await ModelConductor(planner, prompt=style).plan(long, call)
    assert found.workflow is not None
    assert [step.subtask for step in found.workflow.steps] == [long.question]
    assert "does not plan for long questions" in found.warnings[0]
    assert planner.requests == []


async def test_a_model_that_follows_a_schema_writes_json() -> None:
    written = json.dumps({"reasoning": "so", **plan.workflow_document(PLANNED)})
    planner = Planner(written, capabilities=frozenset({"json"}))
    found = await ModelConductor(planner).plan(SITUATION, call)
    assert planner.requests[0].schema == plan.schema(POOL, SITUATION.max_steps)
    assert found.workflow == PLANNED


@pytest.mark.parametrize(
    ("provider", "capabilities", "plan_format"),
    [
        ("llamacpp", frozenset({"json", "prefill"}), "grammar"),
        ("anthropic", frozenset({"json", "prefill"}), "json"),
        ("openai", frozenset({"json"}), "json"),
        ("openai-compatible", frozenset(), "json"),
    ],
)
def test_the_form_of_the_plan_follows_from_what_the_worker_can_do(
    provider: str, capabilities: frozenset[Capability], plan_format: PlanFormat
) -> None:
    profile = WorkerProfile(name="w", provider=provider, capabilities=capabilities)
    assert plan_format_for(profile) == plan_format


async def test_the_form_can_be_set_by_hand() -> None:
    planner = Planner(LISTS, capabilities=frozenset({"json"}))
    await ModelConductor(planner, plan_format="lists").plan(SITUATION, call)
    assert planner.requests[0].schema is None


async def test_temperature_and_length_of_the_plan_are_sent_as_set() -> None:
    planner = Planner(LISTS, LISTS)
    await ModelConductor(planner).plan(SITUATION, call)
    await ModelConductor(planner, temperature=None, max_tokens=300).plan(SITUATION, call)
    assert planner.requests[0].temperature == 0.2
    assert planner.requests[1].temperature is None
    assert planner.requests[1].max_tokens == 300


def test_it_is_a_conductor_that_names_its_worker_and_its_prompts() -> None:
    conductor = ModelConductor(Planner())
    assert isinstance(conductor, Conductor)
    assert conductor.name == "model(planner)"
    assert ModelConductor(Planner(), name="mine").name == "mine"
    assert conductor.prompt_hash == Prompt(plan_format="json").hash
    bare = Prompt(plan_format="json", few_shot=False)
    assert ModelConductor(Planner(), few_shot=False).prompt_hash == bare.hash
