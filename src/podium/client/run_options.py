"""The options of one run, as `AsyncPodium` takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from podium.core.budget import Budget, SharedBudget
from podium.core.events import Emit
from podium.core.request import Image, Message, ResponseOptions, ToolResult
from podium.core.run import ClientRequest, Tier


class RunOptions(TypedDict, total=False):
    """Options of one run; an option left out has the value of the settings.

    Attributes:
        history: The conversation before the question.
        images: Images that belong to the question.
        response_options: Demands on the answer: schema, tools, max_tokens and others.
        owner: Whose run it is.
        tier: `"mini"`, `"podium"` or `"ultra"`.
        max_steps: The most steps that a plan may have.
        rounds: The most rounds.
        budget: Caps on calls, tokens, money, time and depth.
        exclude: Workers, providers and MCP servers that this run must not use, besides those
            that the settings exclude.
        quality_bias: How much quality counts over cost where a learned router chooses, from 0
            (cheapest) to 1 (best).
        emit: Receives every event, on the event loop's thread; it must return at once.
        stream: Emit the answer piece by piece.

    For servers:
        trailing_messages: The messages after the question: tool calls and their results, or the
            start of the answer.
        run_id: The run's id, where it must be known before the run starts.
        request: The API request that the run answers, kept on the run.
        shared_budget: A budget shared with other runs, from which calls reserve too.

    """

    history: tuple[Message, ...]
    trailing_messages: tuple[Message, ...]
    images: tuple[Image, ...]
    response_options: ResponseOptions
    owner: str
    run_id: str
    request: ClientRequest
    tier: Tier
    max_steps: int
    rounds: int
    budget: Budget
    shared_budget: SharedBudget | None
    exclude: frozenset[str]
    quality_bias: float | None
    emit: Emit | None
    stream: bool


class ResumeOptions(TypedDict, total=False):
    """Options of resuming a run.

    Attributes:
        results: The result of every tool call that a waiting run waits for.
        request: The API request that brought the results, kept on the run.
        budget: Replaces the run's own.
        shared_budget: A budget shared with other runs, from which calls reserve too.
        emit: Receives every event, on the event loop's thread; it must return at once.
        stream: Emit the answer piece by piece.
        takeover: Resume a run whose process died; counted on the run.

    """

    results: Sequence[ToolResult]
    request: ClientRequest
    budget: Budget | None
    shared_budget: SharedBudget | None
    emit: Emit | None
    stream: bool
    takeover: bool
