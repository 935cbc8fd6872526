"""All that is known of a run and of its steps, as JSON for pages that show it.

The run as commands print it (`podium.document`) is a part of it. What each worker was sent comes
step by step: in a long run every message repeats what earlier steps replied, and all of them
together would be far more than the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from podium.attempt import Attempt
from podium.document import run_document, step_document
from podium.engine import Toolbox
from podium.engine.retelling import request_of
from podium.plan import workflow_document
from podium.request import Image, Part, Request, Thinking, ToolResult
from podium.run import Round, Run, StepRecord


def run_details(run: Run, *, is_performed: bool) -> dict[str, Any]:
    """A run with its plans, its calls and how it stands, but without the messages of its steps."""
    document = run_document(run)
    rounds = [
        {**shown, **_plan(round_)}
        for shown, round_ in zip(document["rounds"], run.rounds, strict=True)
    ]
    return {
        **document,
        "created_at": run.created_at,
        "owner": run.owner,
        "max_steps": run.max_steps,
        "max_rounds": run.max_rounds,
        "is_performed": is_performed,
        "waiting_for": [
            {"id": call.id, "name": call.name, "arguments": call.arguments}
            for call in run.waiting_for
        ],
        "rounds": rounds,
        "steps": [_calls(step) for step in run.steps],
    }


def step_details(
    run: Run, round_: Round, step: StepRecord, toolbox: Toolbox | None
) -> dict[str, Any]:
    """A step with what its worker was sent, word for word, and the runs that are nested in it."""
    request = request_of(run, round_, step, toolbox)
    return {
        **_calls(step),
        "request": None if request is None else _request(request),
        "thinking": [part.text for part in step.thinking if part.text],
        "nested": [run_details(nested, is_performed=False) for nested in step.nested],
    }


def runs_in(run: Run) -> Iterator[Run]:
    """The run and those that are nested in it, at any depth."""
    yield run
    for step in run.steps:
        for nested in step.nested:
            yield from runs_in(nested)


def _plan(round_: Round) -> dict[str, Any]:
    workflow = round_.workflow
    return {
        "workflow": None if workflow is None else workflow_document(workflow),
        "plan_text": round_.plan_text,
        "planning": [_attempt(attempt) for attempt in round_.planning],
    }


def _calls(step: StepRecord) -> dict[str, Any]:
    return {
        **step_document(step),
        "answered_by": step.answered_by,
        "finish": step.finish,
        "attempts": [_attempt(attempt) for attempt in step.attempts],
        "nested": [nested.id for nested in step.nested],
    }


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "worker": attempt.worker,
        "input_tokens": attempt.usage.input_tokens,
        "output_tokens": attempt.usage.output_tokens,
        "cached_input_tokens": attempt.usage.cached_input_tokens,
        "reasoning_tokens": attempt.usage.reasoning_tokens,
        "cost_usd": attempt.cost_usd,
        "started_ms": attempt.started_ms,
        "finished_ms": attempt.finished_ms,
        "error": attempt.error,
    }


def _request(request: Request) -> dict[str, Any]:
    return {
        "messages": [
            {"role": message.role, "parts": [_part(part) for part in message.parts]}
            for message in request.messages
        ],
        "tools": [{"name": tool.name, "description": tool.description} for tool in request.tools],
        "schema": request.schema,
        "effort": request.effort,
        "temperature": request.temperature,
        "max_tokens": request.max_tokens,
    }


def _part(part: Part) -> dict[str, Any]:
    match part:
        case Image():
            return _image(part)
        case ToolResult():
            images = [_image(image) for image in part.images]
            return {**asdict(replace(part, images=())), "images": images}
        case Thinking():
            return {"kind": part.kind, "text": part.text, "model": part.model}
        case _:
            return asdict(part)


def _image(image: Image) -> dict[str, Any]:
    """What kind of picture it was; the picture itself is in the whole record."""
    return {
        "kind": image.kind,
        "media_type": image.media_type,
        "url": image.url,
        "bytes": len(image.data) * 3 // 4,
    }
