"""`ModelConductor`: asks a worker to write the plan.

A malformed plan is asked for once more; then one worker answers without a plan.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from podium.conductors import plan
from podium.conductors.builtin import model_conductor_name
from podium.conductors.prompt import Form, Length, Prompt
from podium.core.conductor import Conductor, Plan, PlanningContext
from podium.core.errors import MalformedPlan, WorkerError
from podium.core.pool import WorkerProfile
from podium.core.request import Request
from podium.core.worker import Caller, Worker
from podium.core.workflow import Step, Workflow

ATTEMPTS: Final = 2
"""A model that fails twice, the second time with the parser's message, does not learn it from a
third turn."""

LONGEST_QUESTION: Final = 600
"""Characters of a question that a very small model plans for: it copies the question into its
plan, which takes longer than answering it."""

LONGEST_SUBTASK: Final[dict[Length, int]] = {"full": 200, "compact": 200, "trained": 300}
"""Characters of a subtask under a grammar. A trained model copies parts of the question into it,
for workers that do not see the question."""


class ModelConductor(Conductor):
    """Plans by asking a worker.

    With the prompt `compact`, under a grammar, each subtask is the question itself. `structured`
    is by default `form_for(worker.profile)`, and `fallback`, the worker that answers alone where
    there is no plan, the pool's best.
    """

    def __init__(
        self,
        worker: Worker,
        *,
        prompt: Length = "full",
        few_shot: bool = True,
        structured: Form | None = None,
        temperature: float | None = 0.2,
        max_tokens: int | None = None,
        fallback: str | None = None,
        name: str | None = None,
    ) -> None:
        self.worker: Worker = worker
        self.name = name or model_conductor_name(worker.profile.name)
        self._prompt = Prompt(prompt, structured or form_for(worker.profile, prompt), few_shot)
        self.prompt_hash = self._prompt.hash
        self._temperature = temperature
        self._max_tokens = max_tokens
        self._fallback = fallback

    @property
    def is_trained(self) -> bool:
        """True if the worker was trained to plan, and to leave simple questions to one worker."""
        return self._prompt.length == "trained"

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        """Ask for a plan; of all errors only `BudgetExhausted` passes through."""
        if self._prompt.length != "full" and len(context.question) > LONGEST_QUESTION:
            return self._without_plan(
                context, "", [f"{self.name} does not plan for long questions"]
            )
        request = self._request(context)
        text = ""
        warnings: list[str] = []
        try:
            for _ in range(ATTEMPTS):
                reply = await call(self.worker, request)
                text = _with_prefill(reply.text, request.prefill)
                try:
                    return _read(text, context, warnings)
                except MalformedPlan as problem:
                    warnings.append(f"{self.name} wrote a malformed plan: {problem}")
                    turns = self._prompt.reask(text, problem)
                    request = replace(request, messages=request.messages + turns, prefill="")
        except WorkerError as error:
            warnings.append(f"{self.name} could not plan: {error}")
        return self._without_plan(context, text, warnings)

    def _request(self, context: PlanningContext) -> Request:
        request = Request(
            self._prompt.messages(context),
            temperature=self._temperature,
            max_tokens=self._max_tokens,
        )
        if self._prompt.form == "grammar":
            return replace(request, grammar=self._grammar(context))
        if self._prompt.form == "json":
            return replace(request, schema=plan.schema(context.pool, context.max_steps))
        if "prefill" in self.worker.profile.capabilities:
            return replace(request, prefill=self._prompt.opener(context))
        return request

    def _grammar(self, context: PlanningContext) -> str:
        length = self._prompt.length
        return plan.grammar(
            context.pool,
            context.max_steps,
            may_accept=context.answer is not None,
            max_subtask_chars=LONGEST_SUBTASK[length],
            subtask=context.question if length == "compact" else None,
            order=self._prompt.order,
        )

    def _without_plan(self, context: PlanningContext, text: str, warnings: list[str]) -> Plan:
        """Accept the answer there is, or give the whole question to one worker."""
        if context.answer is not None:
            return Plan(None, text, (*warnings, "so the answer of the round before was accepted"))
        pool = context.pool
        worker = pool.best.name
        if self._fallback is not None and self._fallback in pool.names:
            worker = self._fallback
        workflow = Workflow((Step(worker, context.question),))
        return Plan(workflow, text, (*warnings, f"so {worker} answers the question alone"))


def form_for(profile: WorkerProfile, length: Length = "full") -> Form:
    """Return the form in which a worker writes plans best.

    A local model writes under a grammar, so that even a tiny one writes a valid plan. A model that
    continues a prefilled reply thinks first and then writes the lists, as in the paper, and so does
    a model that was trained to. Others follow a JSON Schema if they can.
    """
    if profile.provider == "llamacpp":
        return "grammar"
    if length == "trained":
        return "lists"
    if "json" in profile.capabilities and "prefill" not in profile.capabilities:
        return "json"
    return "lists"


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
