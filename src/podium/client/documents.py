"""Runs, plans and feedback as JSON objects, as `--json` prints them and the server sends them.

`podium runs export` writes whole runs instead.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from podium.conductors.plan import workflow_document
from podium.core.pool import WorkerProfile
from podium.core.request import Usage
from podium.core.run import GuardrailCheck, Round, Run, StepRecord, add_totals
from podium.store import Feedback, RunSummary


def run_document(run: Run) -> dict[str, Any]:
    """Return a run as `ask`, `run`, `runs show` and `runs resume` print it."""
    usage, total_tokens, cost_usd, orchestration = run.totals
    return {
        "run_id": run.id,
        "question": run.question,
        "answer": run.answer,
        "status": run.status,
        "error": run.error,
        "tier": run.tier,
        "conductor": run.conductor,
        "rounds": [_round(round_) for round_ in run.rounds],
        "steps": [step_document(step) for round_ in run.rounds for step in round_.steps],
        "usage": {
            **usage_document(usage),
            "orchestration_input_tokens": orchestration.input_tokens,
            "orchestration_output_tokens": orchestration.output_tokens,
            "total_tokens": total_tokens,
            "cache_hit_rate": usage.cache_hit_rate,
            "orchestration_cache_hit_rate": orchestration.cache_hit_rate,
        },
        "cost_usd": cost_usd,
        "budget": {**asdict(run.budget), "spent": asdict(run.spent)},
        "guardrails": list(run.guardrails),
        "blocked_by": run.blocked_by,
        "guardrail_checks": [check_document(check) for check in run.all_guardrail_checks]
        if run.guardrails
        else [],
    }


def feedback_document(feedback: Feedback) -> dict[str, Any]:
    """Return the feedback without the grader's task, whose answers stay private."""
    fields = {name: value for name, value in asdict(feedback).items() if name != "task"}
    return {"object": "feedback", **fields, "answer": feedback.answer}


def check_document(check: GuardrailCheck) -> dict[str, Any]:
    """Return one check of a guardrail."""
    fields = {name: value for name, value in asdict(check).items() if name != "attempts"}
    totals = add_totals(check.attempts)
    return {
        **fields,
        "usage": usage_document(totals.usage),
        "cost_usd": totals.cost_usd,
    }


def step_document(step: StepRecord) -> dict[str, Any]:
    """Return one step of a run."""
    totals = step.totals
    return {
        "round": step.round,
        "index": step.index,
        "worker": step.worker,
        "subtask": step.subtask,
        "access": step.access if step.access == "all" else list(step.access),
        "status": step.status,
        "reply": step.reply,
        "error": step.error,
        "usage": usage_document(totals.usage),
        "cost_usd": totals.cost_usd,
        "started_ms": step.started_ms,
        "finished_ms": step.finished_ms,
    }


def plan_document(question: str, round_: Round) -> dict[str, Any]:
    """Return a plan as `plan` prints it and `run` reads it."""
    assert round_.workflow is not None, "the first round always has a workflow"
    routing = routing_document(round_)
    decision = {} if routing is None else {"routing": routing}
    return {"question": question, **decision, **workflow_document(round_.workflow)}


def summary_document(summary: RunSummary) -> dict[str, Any]:
    """Return one line of `runs list`."""
    return {"run_id": summary.id, **{k: v for k, v in asdict(summary).items() if k != "id"}}


def _round(round_: Round) -> dict[str, Any]:
    workflow, totals = round_.workflow, add_totals(round_.planning_attempts)
    return {
        "index": round_.index,
        "accepts_answer": round_.accepts_answer,
        "role": round_.role,
        "shape": workflow.shape.value if workflow is not None else None,
        "steps": len(workflow.steps) if workflow is not None else 0,
        "warnings": list(round_.warnings),
        "routing": routing_document(round_),
        "cancelled_steps": [step_document(step) for step in round_.cancelled_steps],
        "usage": usage_document(totals.usage),
        "cost_usd": totals.cost_usd,
    }


def routing_document(round_: Round) -> dict[str, Any] | None:
    """Return the decision of a learned router in that round, if any."""
    routing = round_.routing
    return None if routing is None else {**asdict(routing), "explanation": routing.explanation}


def usage_document(usage: Usage) -> dict[str, int | None]:
    """Return token counts; None where a provider reported none."""
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_input_tokens": usage.cached_input_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
    }


def profile_document(profile: WorkerProfile) -> dict[str, Any]:
    """Return a worker of the pool."""
    return {**asdict(profile), "capabilities": sorted(profile.capabilities)}
