"""Conductors: `RouterConductor`, `FixedConductor` and `RulesConductor` ask no model.

`ModelConductor` asks a worker to write the plan. A malformed plan is asked for once more; then one
worker answers without a plan.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from podium.conductors import plan
from podium.conductors.prompt import PlanFormat, Prompt, PromptStyle
from podium.core.budget import estimate_input_tokens
from podium.core.conductor import FIXED, Conductor, Plan, PlanningContext
from podium.core.errors import MalformedPlan, WorkerError
from podium.core.pool import Capabilities, Pool, WorkerProfile, sole_worker_capabilities
from podium.core.request import Delta, Message, Reply, Request, Text, images_in
from podium.core.run import Run, Tier
from podium.core.worker import Caller, Worker
from podium.core.workflow import Step, Workflow

"""Also the conductor of a run whose workflow came with the question."""

ROUTER: Final = "router"
RULES: Final = "rules"

_TIER: Final = re.compile(r"(?:podium|mini)\((.*)\)", re.DOTALL)
_MODEL: Final = re.compile(r"model\((.*)\)", re.DOTALL)
_EVOLVED: Final = re.compile(r"evolved\(.*\)", re.DOTALL)


def model_conductor_name(worker: str) -> str:
    return f"model({worker})"


def evolved_conductor_name(fingerprint: str) -> str:
    return f"evolved({fingerprint})"


def tier_conductor_name(tier: Tier, configured: str, *, has_router: bool = False) -> str:
    """Name the conductor of a tier; `has_router` says that a learned router serves `mini`."""
    if tier == "mini":
        return f"mini({configured})" if has_router else ROUTER
    return f"podium({configured})" if tier == "podium" else configured


def configured_conductor_name(name: str) -> str:
    tier = _TIER.fullmatch(name)
    return tier[1] if tier else name


def planning_worker_name(name: str) -> str | None:
    """Return the worker that plans for the conductor of that name, if one does."""
    model = _MODEL.fullmatch(configured_conductor_name(name))
    return model[1] if model else None


def resume_conflict(run: Run, conductor: str) -> str | None:
    """Return why the conductor here must not resume the run; None where it may.

    An evolved coordinator and other conductors cannot resume each other's runs: one's turns are
    not the other's rounds. All others may; a workflow that came with the question needs none.
    """
    previous, current = (
        configured_conductor_name(run.conductor),
        configured_conductor_name(conductor),
    )
    evolved = any(_EVOLVED.fullmatch(name) for name in (previous, current))
    if previous == current or not evolved or run.conductor == FIXED:
        return None
    return (
        f"{run.id} was planned by {previous}, and the conductor here is {current}; configure that "
        f"one in [conductor], or name it: podium runs resume {run.id} --conductor NAME, where a "
        f"coordinator is named as evolved:DIR"
    )


Choose = Callable[[PlanningContext], str]
"""Returns the name of the worker that answers."""

ANSWER_TOKENS: Final = 1024
"""Tokens that must be left in a worker's context window after reading the question."""


class RouterConductor(Conductor):
    """Gives the unaltered question to one worker.

    Args:
        choose: Returns the worker's name; by default that of the cheapest capable one.
        name: Appears on the run.

    """

    def __init__(self, choose: Choose | None = None, *, name: str = ROUTER) -> None:
        self._choose = choose or cheapest_capable
        self.name = name

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        """Plan one step; accept the answer once there is one."""
        if context.answer is not None:
            return Plan(None)
        worker = context.pool[self._choose(context)]
        return Plan(Workflow((Step(worker.name, context.question),)))


def cheapest_capable(context: PlanningContext) -> str:
    """Return the name of the cheapest worker that can take the question."""
    return Pool(capable_workers(context)).cheapest.name


def capable_workers(context: PlanningContext) -> tuple[WorkerProfile, ...]:
    """Return the workers that can take the question by themselves, without their fallbacks.

    A capable worker has room in its context window for conversation, question and answer, and the
    capabilities that the answer and the images need. A conductor in the pool is none: it would
    plan. Where no worker is capable, those with the demanded capabilities are returned, or else
    all: the provider's error then says what is wrong.
    """
    message = Message("user", (*context.images, Text(context.question)))
    request = Request((*context.history, message), tools=context.response_options.tools)
    demanded = sole_worker_capabilities(context.response_options, context.images)
    able = [worker for worker in context.pool if _has(worker, demanded)]
    wanted = sole_worker_capabilities(context.response_options, images_in(request.messages))
    capable = [worker for worker in able if _has(worker, wanted) and _fits(worker, request)]
    return tuple(replace(worker, fallback=None) for worker in capable or able or context.pool)


def _has(worker: WorkerProfile, needs: Capabilities) -> bool:
    return worker.is_model and needs <= worker.capabilities


def _fits(worker: WorkerProfile, request: Request) -> bool:
    window = worker.limits.context_window
    return window is None or estimate_input_tokens(request) + ANSWER_TOKENS <= window


class FixedConductor(Conductor):
    """Plans the same workflow for every question, and accepts its answer.

    Args:
        workflow: The workflow.
        name: Appears on the run.

    """

    def __init__(self, workflow: Workflow, *, name: str = FIXED) -> None:
        self.workflow = workflow
        self.name = name

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        """Plan the workflow; accept the answer once there is one."""
        return Plan(self.workflow if context.answer is None else None)


Complexity = Literal["simple", "medium", "complex"]

COMPLEX_WORDS: Final = ("solve", "implement", "write code", "algorithm", "optimize")
MEDIUM_WORDS: Final = ("compare", "analyze", "evaluate")

TECHNICAL_VIEW: Final = "Look at the question from the technical side and say what follows."
PRACTICAL_VIEW: Final = "Look at the question from the practical side and say what follows."
SYNTHESIS: Final = "Bring the views you are shown together into one balanced answer."
PLAN: Final = "Plan the solution: the approach, its steps and its pitfalls. Do not carry it out."
IMPLEMENT: Final = "Carry the solution out in full, after the plan where you are shown one."
VERIFY: Final = (
    "Check the solution you are shown, correct and refine it, and give the finished result."
)


@dataclass(frozen=True, slots=True)
class RoleAssignment:
    """The worker of each role. `lead` has the last step and answers simple questions alone."""

    lead: str
    planner: str
    implementer: str
    technical: str
    practical: str


PROOF_OF_CONCEPT: Final = RoleAssignment(
    lead="claude-sonnet-4",
    planner="gpt-5",
    implementer="deepseek-r1-qwen-32b",
    technical="gpt-5",
    practical="gemini-2.5-pro",
)
"""The proof of concept's assignment, for a pool that has all of its four workers."""


class RulesConductor(Conductor):
    """Chooses one of three workflows by words in the question.

    These are the rules of the Conductor's public proof of concept, kept exactly: a baseline that a
    trained conductor has to beat.

    Args:
        name: Appears on the run.

    """

    def __init__(self, *, name: str = RULES) -> None:
        self.name = name

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        """Plan a workflow; accept the answer once there is one."""
        return Plan(_rules_workflow(context) if context.answer is None else None)


def classify_question(question: str) -> Complexity:
    lowered = question.lower()
    if any(word in lowered for word in COMPLEX_WORDS):
        return "complex"
    if any(word in lowered for word in MEDIUM_WORDS):
        return "medium"
    return "simple"


def assign_roles(pool: Pool) -> RoleAssignment:
    """Assign the roles: as in the proof of concept where the pool has its workers.

    In any other pool the best worker leads, and the others take the earlier roles in the pool's
    order, repeating where there are too few.
    """
    poc = PROOF_OF_CONCEPT
    names = {worker.name for worker in pool.workers}
    if {poc.lead, poc.planner, poc.implementer, poc.practical} <= names:
        return poc
    lead = pool.most_expensive.name
    models = [worker.name for worker in pool.workers if worker.is_model]
    others = [name for name in models if name != lead] or [lead]
    first, second = others[0], others[1 % len(others)]
    return RoleAssignment(
        lead, planner=first, implementer=second, technical=first, practical=second
    )


class _RuleStep(NamedTuple):
    worker: str
    instruction: str
    reads_earlier: bool = True


def _rules_workflow(context: PlanningContext) -> Workflow:
    """Build the workflow; if it has too many steps, keep the last ones."""
    roles = assign_roles(context.pool)
    steps = _rule_steps(classify_question(context.question), roles)[-context.max_steps :]
    if len(steps) < 2:
        return Workflow((Step(roles.lead, context.question),))
    return Workflow(
        tuple(
            Step(
                step.worker,
                _subtask(step.instruction, context),
                access=tuple(range(index)) if step.reads_earlier else (),
            )
            for index, step in enumerate(steps)
        )
    )


def _rule_steps(complexity: Complexity, roles: RoleAssignment) -> tuple[_RuleStep, ...]:
    if complexity == "complex":
        return (
            _RuleStep(roles.planner, PLAN),
            _RuleStep(roles.implementer, IMPLEMENT),
            _RuleStep(roles.lead, VERIFY),
        )
    if complexity == "medium":
        return (
            _RuleStep(roles.technical, TECHNICAL_VIEW, reads_earlier=False),
            _RuleStep(roles.practical, PRACTICAL_VIEW, reads_earlier=False),
            _RuleStep(roles.lead, SYNTHESIS),
        )
    return ()


def _subtask(instruction: str, context: PlanningContext) -> str:
    """Return the instruction, with the question where workers would not see it otherwise."""
    if context.pool.share_question:
        return instruction
    return f"{instruction}\n\n{context.question}"


ATTEMPTS: Final = 2
"""A model that fails twice, the second time with the parser's message, does not learn it from a
third turn."""

LONGEST_QUESTION: Final = 600
"""Characters of a question that a very small model plans for: it copies the question into its
plan, which takes longer than answering it."""

MAX_SUBTASK_CHARS: Final[dict[PromptStyle, int]] = {"full": 200, "compact": 200, "trained": 300}
"""Characters of a subtask under a grammar. A trained model copies parts of the question into it,
for workers that do not see the question."""


class ModelConductor(Conductor):
    """Plans by asking a worker.

    Args:
        worker: The model that plans.
        prompt: `"full"` or `"compact"`; with `"compact"`, under a grammar, each subtask is the
            question itself.
        few_shot: Show examples of plans.
        plan_format: How a plan is written; by default `plan_format_for(worker.profile)`.
        temperature: Sampling temperature of plans.
        max_tokens: The most tokens of a plan.
        fallback: The worker that answers alone where there is no plan; by default the pool's best.
        name: Appears on the run.
        overlap: Stream the plan, and begin its steps while it is written.
        speculate: Let the fallback answer meanwhile; a plan of one step for it uses that answer.

    """

    def __init__(
        self,
        worker: Worker,
        *,
        prompt: PromptStyle = "full",
        few_shot: bool = True,
        plan_format: PlanFormat | None = None,
        temperature: float | None = 0.2,
        max_tokens: int | None = None,
        fallback: str | None = None,
        name: str | None = None,
        overlap: bool = True,
        speculate: bool = False,
    ) -> None:
        self.worker: Worker = worker
        self.name = name or model_conductor_name(worker.profile.name)
        plan_format = plan_format or plan_format_for(worker.profile, prompt)
        self._prompt = Prompt(prompt, plan_format, few_shot)
        self.prompt_hash = self._prompt.hash
        self.is_trained = prompt == "trained"
        self._temperature = temperature
        self._max_tokens = max_tokens
        self._fallback = fallback
        self._overlap = overlap
        self._speculate = speculate

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        """Ask for a plan; of all errors only `BudgetExhausted` passes through.

        A pool with one model is planned for only by a conductor that was trained to: another one
        makes answers worse and slower.
        """
        sole = None if self.is_trained else context.pool.sole_model
        if sole is not None:
            accepts = context.answer is not None
            return Plan(None if accepts else Workflow((Step(sole.name, context.question),)))
        if self._prompt.style != "full" and len(context.question) > LONGEST_QUESTION:
            return self._without_plan(
                context, "", [f"{self.name} does not plan for long questions"]
            )
        request = self._request(context)
        if self._speculate and context.early is not None and not context.rounds:
            context.early.speculate(self._sole_worker(context.pool))
        text = ""
        warnings: list[str] = []
        try:
            for _ in range(ATTEMPTS):
                reply = await self._call(context, call, request)
                text = _with_prefill(reply.text, request.prefill)
                try:
                    return _read(text, context, warnings)
                except MalformedPlan as problem:
                    warnings.append(f"{self.name} wrote a malformed plan: {problem}")
                    if context.early is not None:
                        context.early.cancel(warnings[-1])
                    turns = self._prompt.reask(text, problem)
                    prefill = request.prefill if request.grammar else ""
                    messages = request.messages + turns
                    request = replace(request, messages=messages, prefill=prefill)
        except WorkerError as error:
            warnings.append(f"{self.name} could not plan: {error}")
        return self._without_plan(context, text, warnings)

    async def _call(self, context: PlanningContext, call: Caller, request: Request) -> Reply:
        """Ask for the plan; where steps may begin early, stream it and begin them."""
        early = context.early if self._overlap else None
        if early is None:
            return await call(self.worker, request)
        has_answer = context.answer is not None
        steps = plan.PlanStream(context.pool, max_steps=context.max_steps, may_accept=has_answer)

        def receive(delta: Delta) -> None:
            for step in steps.feed(delta.text) if delta.kind == "text" else ():
                early.begin(step)

        def retry(_worker: str, error: WorkerError, _wait: float) -> Request:
            steps.restart()
            early.cancel(f"{self.name} could not plan: {error}")
            return request

        return await call(self.worker, request, receive, retry)

    def _request(self, context: PlanningContext) -> Request:
        request = Request(
            self._prompt.messages(context),
            temperature=self._temperature,
            max_tokens=self._max_tokens,
            cache_ttl="5m",
        )
        plan_format, capabilities = self._prompt.plan_format, self.worker.profile.capabilities
        if plan_format == "json" and "json" in capabilities:
            return replace(request, schema=plan.schema(context.pool, context.max_steps))
        begun = self._prompt.opener(context) if "prefill" in capabilities else ""
        if plan_format == "grammar":
            return replace(request, prefill=begun, grammar=self._grammar(context, begun))
        return replace(request, prefill=begun)

    def _grammar(self, context: PlanningContext, begun: str) -> str:
        style = self._prompt.style
        return plan.grammar(
            context.pool,
            context.max_steps,
            may_accept=context.answer is not None,
            max_subtask_chars=MAX_SUBTASK_CHARS[style],
            subtask=context.question if style == "compact" else None,
            layout=self._prompt.layout,
            begun=begun,
        )

    def _without_plan(self, context: PlanningContext, text: str, warnings: list[str]) -> Plan:
        """Accept the answer there is, or give the whole question to one worker."""
        if context.answer is not None:
            return Plan(None, text, (*warnings, "so the answer of the round before was accepted"))
        worker = self._sole_worker(context.pool)
        workflow = Workflow((Step(worker, context.question),))
        return Plan(workflow, text, (*warnings, f"so {worker} answers the question alone"))

    def _sole_worker(self, pool: Pool) -> str:
        return self._fallback if self._fallback in pool.names else pool.most_expensive.name


def plan_format_for(profile: WorkerProfile, style: PromptStyle = "full") -> PlanFormat:
    """Return the format in which a worker writes plans best.

    A local model writes under a grammar, so that even a tiny one writes a valid plan. A trained
    model needs no schema. Others write JSON step by step, so that steps begin early.
    """
    if profile.provider == "llamacpp":
        return "grammar"
    return "lists" if style == "trained" else "json"


def _with_prefill(text: str, prefill: str) -> str:
    """Return the whole reply; some workers return only the continuation."""
    return text if text.startswith(prefill) else prefill + text


def _read(text: str, context: PlanningContext, warnings: list[str]) -> Plan:
    parsed = plan.parse(
        text,
        context.pool,
        max_steps=context.max_steps,
        may_accept=context.answer is not None,
    )
    return Plan(parsed.workflow, text, (*warnings, *parsed.warnings))
