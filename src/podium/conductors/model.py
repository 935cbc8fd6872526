"""The model conductor: any worker, asked in words to write the plan.

It asks, reads what was written, asks once more where that is no plan, and falls back to what
needs no plan. The words are `podium.conductor.prompt`, reading them is `podium.plan`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from podium.conductors import plan
from podium.conductors.names import model_conductor_name
from podium.conductors.prompt import Form, Length, Prompt
from podium.core.conductor import Plan, PlanningContext
from podium.core.errors import MalformedPlan, WorkerError
from podium.core.pool import WorkerProfile
from podium.core.request import Request
from podium.core.worker import Caller, Worker
from podium.core.workflow import Step, Workflow

ATTEMPTS: Final = 2
"""A malformed plan is asked for once more, and no oftener: a model that cannot write a plan
after being told what was wrong with it will not learn it from a third turn."""


LONGEST_QUESTION: Final = 600
"""Characters of a question that a very small model is asked to plan for: it copies the question
into its plan, in whole or in parts, which takes longer than answering it."""

LONGEST_SUBTASK: Final[dict[Length, int]] = {"full": 200, "compact": 200, "trained": 300}
"""Characters of a subtask under a grammar. What a trained model writes may hold a good part of
the question, for workers that do not see it."""


class ModelConductor:
    """Plans by asking a worker.

    `prompt` is `full` (the paper's structure, with worked examples unless `few_shot` is False)
    or `compact`, for models so small that they cannot word a subtask: under a grammar each
    subtask is then the question itself, and the model decides who answers it, whether somebody
    else does so too, and who reads whom. `trained` is for small models that were trained to
    plan: they are told nothing but the pool and the question. `structured` is how the plan is
    written; None takes what suits the worker, see `form_for`. `fallback` names the worker that
    answers alone where there is no plan; else, and where it is left out of a run, that is the
    pool's best.
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
        self.worker = worker
        self.name = name or model_conductor_name(worker.profile.name)
        self._prompt = Prompt(prompt, structured or form_for(worker.profile, prompt), few_shot)
        self._temperature = temperature
        self._max_tokens = max_tokens
        self._fallback = fallback

    @property
    def prompt_hash(self) -> str:
        """A fingerprint of the prompt files in use; it belongs to every run made with them."""
        return self._prompt.hash

    @property
    def is_trained(self) -> bool:
        """Whether the worker was trained to plan, and with that to leave a single question to one
        worker."""
        return self._prompt.length == "trained"

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        """Ask for a plan; `BudgetExhausted` is all that passes through."""
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
                text = _begun(reply.text, request.prefill)
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
        """What needs no plan: the answer there is, or the whole question for one worker."""
        if context.answer is not None:
            return Plan(None, text, (*warnings, "so the answer of the round before was accepted"))
        pool = context.pool
        named = self._fallback if self._fallback in pool.names else None
        alone = named or pool.best.name
        workflow = Workflow((Step(alone, context.question),))
        return Plan(workflow, text, (*warnings, f"so {alone} answers the question alone"))


def form_for(profile: WorkerProfile, length: Length = "full") -> Form:
    """How a worker writes plans best, when it is asked with that prompt.

    A local model is held to the lists by a grammar, so that even a tiny one cannot go wrong. A
    model that continues what was begun thinks first and then writes the lists, as in the
    paper. Of the others, those that can follow a JSON Schema do, and the rest write lists; so
    does every model that was trained to.
    """
    if profile.provider == "llamacpp":
        return "grammar"
    if length == "trained":
        return "lists"
    if "json" in profile.capabilities and "prefill" not in profile.capabilities:
        return "json"
    return "lists"


def _begun(text: str, prefill: str) -> str:
    """The reply from its beginning, also from a worker that returns only its continuation."""
    return text if text.startswith(prefill) else prefill + text


def _read(text: str, context: PlanningContext, warnings: list[str]) -> Plan:
    parsed = plan.parse(
        text,
        context.pool,
        max_steps=context.max_steps,
        may_accept=context.answer is not None,
    )
    return Plan(parsed.workflow, text, (*warnings, *parsed.warnings))
