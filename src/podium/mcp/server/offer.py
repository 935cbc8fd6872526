"""What Podium offers to the clients of others: ask and plan, as tools, and how each is done.

Whoever started `podium mcp` decides on pool, budget and limits; a call may only ask for less.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, get_args

from podium.api import AsyncPodium
from podium.document import plan_document
from podium.errors import PodiumError
from podium.events import Event, Planned, StepDone, StepStarted
from podium.house import Wishes
from podium.providers.wire import Document
from podium.run import Round, Run, Tier
from podium.runner import Options
from podium.structure import misfit

Progress = Callable[[str], None]
"""Gets a line on what is being done."""

_QUESTION: Final = {"type": "string", "minLength": 1, "description": "the whole question"}
_TIER: Final = {
    "type": "string",
    "enum": list(get_args(Tier)),
    "description": "how much conducting: mini asks one model, ultra plans several steps, podium "
    "chooses between them",
}
_MAX_STEPS: Final = {
    "type": "integer",
    "minimum": 1,
    "maximum": 100,
    "description": "the most steps that a plan may have; it can only lower what is set already",
}
_ROUNDS: Final = {
    "type": "integer",
    "minimum": 1,
    "maximum": 100,
    "description": "how often the conductor may plan, having seen the answer so far; it can only "
    "lower what is set already",
}
_DIAL: Final = {
    "type": "number",
    "minimum": 0,
    "maximum": 1,
    "description": "how much quality counts over cost where a learned router chooses, from 0, the "
    "cheapest, to 1, the best; for the tiers mini and podium",
}
_USD: Final = {
    "type": "number",
    "minimum": 0,
    "description": "the most that this may cost, in US dollars; it can only lower the cap that is "
    "set already",
}


def _form(**properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"question": _QUESTION, **properties},
        "required": ["question"],
        "additionalProperties": False,
    }


OFFERED: Final[tuple[Document, ...]] = (
    {
        "name": "ask",
        "title": "Ask a pool of models",
        "description": "Answers a question with several language models, led by a conductor that "
        "plans who does what. Worth its time and cost for questions that are hard or that another "
        "opinion should check. It sees nothing but the question: put into it what it needs.",
        "inputSchema": _form(
            tier=_TIER, max_steps=_MAX_STEPS, rounds=_ROUNDS, dial=_DIAL, budget_usd=_USD
        ),
        "outputSchema": {
            "type": "object",
            "properties": {
                "run_id": {"type": "string", "description": "for podium runs show"},
                "status": {"type": "string"},
                "answer": {"type": ["string", "null"]},
                "error": {"type": ["string", "null"]},
                "workers": {"type": "array", "items": {"type": "string"}},
                "total_tokens": {"type": ["integer", "null"]},
                "cost_usd": {"type": ["number", "null"], "description": "null: not known"},
            },
            "required": ["run_id", "status", "answer"],
        },
        "annotations": {"openWorldHint": True, "destructiveHint": False},
    },
    {
        "name": "plan",
        "title": "Plan without carrying anything out",
        "description": "Says which models would be asked what for a question, and who would read "
        "whose result. Only the plan is made: no step of it is carried out.",
        "inputSchema": _form(tier=_TIER, max_steps=_MAX_STEPS, dial=_DIAL, budget_usd=_USD),
        "annotations": {"readOnlyHint": True, "openWorldHint": True},
    },
)

_FORMS: Final = {tool["name"]: tool["inputSchema"] for tool in OFFERED}


async def carry_out(
    podium: AsyncPodium,
    usual: Wishes,
    tool: str,
    arguments: Mapping[str, Any],
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The result of one of the tools, errors among them. `usual` are the wishes of whoever
    started the server; its limits and its budget are the most that there is."""
    problem = misfit(json.dumps(arguments), _FORMS[tool])
    if problem is not None:
        return _failed(f"the arguments do not fit: {problem}")
    question = arguments["question"]
    try:
        wishes = _wishes(usual, await podium.options(), arguments)
        if tool == "plan":
            return _plan_result(question, await podium.plan(question, **wishes))
        if progress is not None:
            wishes["emit"] = _telling(progress)
        return _run_result(await podium.ask(question, **wishes))
    except PodiumError as error:
        return _failed(str(error))


def _wishes(usual: Wishes, options: Options, arguments: Mapping[str, Any]) -> Wishes:
    wishes = usual.copy()
    if "tier" in arguments:
        wishes["tier"] = arguments["tier"]
    if "dial" in arguments:
        wishes["dial"] = arguments["dial"]
    most = replace(
        options,
        max_steps=usual.get("max_steps", options.max_steps),
        rounds=usual.get("rounds", options.rounds),
        budget=usual.get("budget", options.budget),
    )
    allowed = most.narrowed(
        max_steps=arguments.get("max_steps"),
        rounds=arguments.get("rounds"),
        caps={"usd": arguments.get("budget_usd")},
    )
    wishes["max_steps"], wishes["rounds"] = allowed.max_steps, allowed.rounds
    wishes["budget"] = allowed.budget
    return wishes


def _telling(progress: Progress) -> Callable[[Event], None]:
    def tell(event: Event) -> None:
        match event:
            case Planned(round=round_) if round_.workflow is not None:
                workers = ", ".join(dict.fromkeys(step.worker for step in round_.workflow.steps))
                count = len(round_.workflow)
                progress(f"Planned {'one step' if count == 1 else f'{count} steps'} for {workers}.")
            case StepStarted(index=index, worker=worker):
                progress(f"Step {index + 1}: {worker} is asked.")
            case StepDone(step=step):
                progress(f"Step {step.index + 1}: {step.status}.")

    return tell


def _run_result(run: Run) -> dict[str, Any]:
    said = run.answer if run.answer is not None else f"{run.status}: {run.error}"
    return {
        "content": [_text(said)],
        "structuredContent": {
            "run_id": run.id,
            "status": run.status,
            "answer": run.answer,
            "error": run.error,
            "workers": list(dict.fromkeys(step.answered_by or step.worker for step in run.steps)),
            "total_tokens": run.usage.total_tokens,
            "cost_usd": run.cost_usd,
        },
        "isError": run.answer is None,
    }


def _plan_result(question: str, planned: Round) -> dict[str, Any]:
    document = plan_document(question, planned)
    lines = [
        f"{index} {step['worker']}: {step['subtask']} (reads {_reads(step['access'])})"
        for index, step in enumerate(document["steps"])
    ]
    return {
        "content": [_text("\n".join(lines))],
        "structuredContent": document,
        "isError": False,
    }


def _reads(access: str | list[int]) -> str:
    if access == "all":
        return "all before it"
    return ", ".join(map(str, access)) if access else "nothing"


def _failed(problem: str) -> dict[str, Any]:
    return {"content": [_text(problem)], "isError": True}


def _text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}
