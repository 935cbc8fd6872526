"""OpenTelemetry traces by the conventions for generative AI.

A request is a span; within it are its run (`invoke_agent`), the steps and every model call
(`chat`), with tokens, cost and status. A request with a `traceparent` joins that trace. Spans hold
no text of questions, answers or errors, only the run's id. This module needs the extra `otel`;
OpenTelemetry's own variables (`OTEL_EXPORTER_OTLP_ENDPOINT`, …) set the destination.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from podium._version import __version__
from podium.core.events import Event, GuardrailActed, RunDone, RunStarted, StepDone, StepStarted
from podium.core.pool import Pool
from podium.core.request import ToolCall, Usage
from podium.core.run import Attempt, GuardrailCheck, Run
from podium.server.access.policy import RequestCost
from podium.server.model_catalog import MODEL_NAMES, ModelTarget

if TYPE_CHECKING:
    from podium.server.endpoints.http import HttpExchange

PROVIDER: Final = "podium"
"""The provider of spans that are not model calls."""

_MILLISECOND: Final = 1_000_000
_SECOND: Final = 1_000_000_000

StepPosition = tuple[int, int]
"""A step of a run: its round and its index."""


@dataclass(slots=True)
class _Running:
    """A run in progress; `origin` is the start of its times, in nanoseconds."""

    span: Span
    origin: int
    pool: Pool
    rounds_before: int
    attempts_before: Mapping[StepPosition, int]
    steps: dict[StepPosition, Span] = field(default_factory=dict)


class TraceRecorder:
    """Records spans of requests, and of all runs from their events."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("podium", __version__)
        self._incoming = TraceContextTextMapPropagator()
        self._running: dict[str, _Running] = {}

    async def close(self) -> None:
        """Export pending spans."""
        await asyncio.to_thread(self._provider.shutdown)

    @contextmanager
    def request(self, path: str, exchange: HttpExchange) -> Iterator[None]:
        """Open the span of one request around all that is done for it."""
        carrier = {
            name: value
            for name in ("traceparent", "tracestate")
            if (value := exchange.headers.get(name)) is not None
        }
        with self._tracer.start_as_current_span(
            f"POST {path}",
            context=self._incoming.extract(carrier),
            kind=SpanKind.SERVER,
            attributes={"http.request.method": "POST", "http.route": path},
        ) as span:
            try:
                yield
            finally:
                span.set_attribute("http.response.status_code", exchange.status)
                if exchange.status >= 500:
                    span.set_status(StatusCode.ERROR)

    def record_cost(self, target: ModelTarget, cost: RequestCost) -> None:
        """Add usage and cost to the request's span, which is also a single worker's."""
        span = trace.get_current_span()
        span.set_attribute("gen_ai.request.model", target.name)
        if target.worker is not None:
            span.set_attribute("gen_ai.operation.name", "chat")
            span.set_attribute("gen_ai.provider.name", target.worker.profile.provider)
            span.set_attributes(_token_counts(cost.usage))
        span.set_attributes(_total(cost.usage, cost.cost_usd))

    def __call__(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._begin(event)
            case StepStarted():
                self._begin_step(event)
            case GuardrailActed(run_id=run_id, check=check):
                self._note(run_id, check)
            case StepDone():
                self._end_step(event)
            case RunDone():
                self._end(event.run)

    def _begin(self, event: RunStarted) -> None:
        run = event.run
        context, origin = None, time.time_ns() - int(run.spent.seconds * _SECOND)
        if event.parent is not None and event.parent[0] in self._running:
            parent = self._running[event.parent[0]]
            context, origin = _span_context(_step_of(parent, event.parent[1])), parent.origin
        name = MODEL_NAMES[run.tier]
        span = self._tracer.start_span(
            f"invoke_agent {name}",
            context=context,
            attributes={
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.provider.name": PROVIDER,
                "gen_ai.agent.name": name,
                "podium.run.id": run.id,
                "podium.conductor": run.conductor,
            },
        )
        self._running[run.id] = _Running(
            span,
            origin,
            pool=run.pool,
            rounds_before=len(run.rounds),
            attempts_before={(s.round, s.index): len(s.attempts) for s in run.steps},
        )

        if not run.rounds:  # a resumed run has recorded its checks of the question before
            for check in run.guardrail_checks:
                self._note(run.id, check)

    def _note(self, run_id: str, check: GuardrailCheck) -> None:
        """Add a guardrail's action as an event of the step's or run's span, without its reason."""
        running = self._running.get(run_id)
        if running is None:
            return
        span_of_step = None if check.step is None else running.steps.get((check.round, check.step))
        span = span_of_step or running.span
        span.add_event(
            "podium.guardrail",
            {
                "podium.guardrail": check.guardrail,
                "podium.stage": check.stage,
                "podium.action": check.action,
            },
        )
        for attempt in check.attempts:
            self._call(attempt, running, span)

    def _begin_step(self, event: StepStarted) -> None:
        running = self._running.get(event.run_id)
        if running is None:
            return
        running.steps[event.round, event.index] = self._tracer.start_span(
            f"step {event.index} {event.worker}",
            context=_span_context(running.span),
            attributes={
                "podium.run.id": event.run_id,
                "podium.round": event.round,
                "podium.step": event.index,
                "podium.worker": event.worker,
            },
        )

    def _end_step(self, event: StepDone) -> None:
        running, step = self._running.get(event.run_id), event.step
        span = running.steps.pop((step.round, step.index), None) if running is not None else None
        if running is None or span is None:
            return
        known = running.attempts_before.get((step.round, step.index), 0)
        for attempt in step.attempts[known:]:
            self._call(attempt, running, span)
        span.set_attribute("podium.step.status", step.status)
        parts = (part for turn in step.turns for part in turn.parts)
        tools = [part.name for part in parts if isinstance(part, ToolCall)]
        if tools:
            span.set_attribute("podium.tools", tools)
        if step.status == "failed":
            span.set_status(StatusCode.ERROR)
        span.end()

    def _end(self, run: Run) -> None:
        running = self._running.pop(run.id, None)
        if running is None:
            return
        for round_ in run.rounds[running.rounds_before :]:
            early = (attempt for step in round_.cancelled_steps for attempt in step.attempts)
            for attempt in (*round_.planning_attempts, *early):
                self._call(attempt, running, running.span)
        for step in running.steps.values():
            step.end()
        running.span.set_attribute("podium.run.status", run.status)
        running.span.set_attribute("podium.rounds", len(run.rounds))
        running.span.set_attributes(_total(run.usage, run.cost_usd))
        if run.answer is None and run.status not in ("waiting", "interrupted"):
            running.span.set_status(StatusCode.ERROR)
        running.span.end()

    def _call(self, attempt: Attempt, running: _Running, parent: Span) -> None:
        """Record the span of a model call. Only these have token counts by the conventions' names,
        so that a sum over spans counts nothing twice."""
        profile = next((p for p in running.pool if p.name == attempt.worker), None)
        model = profile.model if profile is not None and profile.model else attempt.worker
        span = self._tracer.start_span(
            f"chat {model}",
            context=_span_context(parent),
            kind=SpanKind.CLIENT,
            start_time=running.origin + int(attempt.started_ms * _MILLISECOND),
            attributes={
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": (profile.provider if profile else "") or PROVIDER,
                "gen_ai.request.model": model,
                "podium.worker": attempt.worker,
                **_token_counts(attempt.usage),
            },
        )
        if attempt.cost_usd is not None:
            span.set_attribute("podium.cost_usd", attempt.cost_usd)
        if attempt.error is not None:
            span.set_attribute("error.type", "_OTHER")
            span.set_status(StatusCode.ERROR)
        span.end(running.origin + int(attempt.finished_ms * _MILLISECOND))


def create_otlp_recorder() -> TraceRecorder:
    named = Resource({"service.name": "podium", "service.version": __version__})
    provider = TracerProvider(resource=named.merge(OTELResourceDetector().detect()))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return TraceRecorder(provider)


def _span_context(span: Span) -> Context:
    return trace.set_span_in_context(span, Context())


def _step_of(running: _Running, index: int) -> Span:
    """Return the span of the step in the current round, else the run's."""
    return next((s for (_, i), s in reversed(running.steps.items()) if i == index), running.span)


def _token_counts(usage: Usage) -> dict[str, int]:
    counts = {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_input_tokens,
    }
    return {name: count for name, count in counts.items() if count is not None}


def _total(usage: Usage, cost_usd: float | None) -> dict[str, float]:
    sums = {"podium.total_tokens": usage.total_tokens, "podium.cost_usd": cost_usd}
    return {name: value for name, value in sums.items() if value is not None}
