from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from podium.conductors import Conductor, FixedConductor, ModelConductor
from podium.conductors.plan import write
from podium.config import Settings, load
from podium.core.errors import ConfigError, Unavailable
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Price, Usage
from podium.core.worker import Worker
from podium.core.workflow import Step, Workflow
from podium.engine.guardrails import Guardrail, GuardrailInput, Note, Verdict, Verify
from podium.engine.runner import ConductorWorker
from podium.server.records.traces import TraceRecorder
from podium.server.startup import create_application as whole_application
from podium.workers import ScriptedWorker
from support.serving import PLAIN, Served, application, serving

TWO = Workflow((Step("a", "draft it"), Step("b", "check it", (0,))))
SECRET = "the secret words"


@asynccontextmanager
async def traced(
    workers: Sequence[Worker], conductor: Conductor, guardrails: Sequence[Guardrail] = ()
) -> AsyncIterator[tuple[Served, InMemorySpanExporter]]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    traces = TraceRecorder(provider)
    app = application(workers, conductor=conductor, guardrails=guardrails)
    async with serving(app) as served:
        service = served.service
        service.repository.broadcast.listener = traces
        served.app.state.holder.service = replace(service, traces=traces)
        yield served, exporter
    await traces.close()


def pair() -> list[ScriptedWorker]:
    profiles = (
        WorkerProfile(
            name=name, provider="scripted", model=f"{name}-1", price=Price(input=1.0, output=2.0)
        )
        for name in "ab"
    )
    return [ScriptedWorker(profile, SECRET, usage=Usage(10, 5, 2, 0, 0)) for profile in profiles]


def pool_of(workers: Sequence[Worker]) -> Pool:
    return Pool(tuple(worker.profile for worker in workers))


def by_name(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


async def test_a_request_its_run_its_steps_and_their_calls_are_one_trace() -> None:
    async with traced(pair(), FixedConductor(TWO)) as (served, exporter):
        await served.ask(SECRET, model="podium-ultra")
    spans = by_name(exporter)
    request, run = spans[f"POST {PLAIN}"], spans["invoke_agent podium-ultra"]
    step, call = spans["step 1 b"], spans["chat b-1"]
    assert set(spans) == {
        request.name,
        run.name,
        "step 0 a",
        "chat a-1",
        step.name,
        call.name,
    }
    assert parent_of(request) is None
    assert parent_of(run) == id_of(request)
    assert parent_of(step) == id_of(run)
    assert parent_of(call) == id_of(step)
    assert (request.kind, call.kind) == (SpanKind.SERVER, SpanKind.CLIENT)
    assert attributes(call) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "b-1",
        "podium.worker": "b",
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 2,
        "podium.cost_usd": 2e-05,
    }
    assert attributes(run)["podium.run.status"] == "answered"
    assert attributes(run)["podium.total_tokens"] == 30
    assert attributes(request)["http.response.status_code"] == 200
    assert attributes(request)["gen_ai.request.model"] == "podium-ultra"


async def test_times_lie_within_each_other() -> None:
    async with traced(pair(), FixedConductor(TWO)) as (served, exporter):
        await served.ask(model="podium-ultra")
    spans = by_name(exporter)
    request, call = spans[f"POST {PLAIN}"], spans["chat b-1"]
    moments = [request.start_time, call.start_time, call.end_time, request.end_time]
    began, called, replied, ended = (moment or 0 for moment in moments)
    tolerance = 5 * 10**9  # wall time and the engine's own clock are read at two moments
    assert 0 < began - tolerance <= called <= replied <= ended + tolerance


async def test_spans_have_no_text() -> None:
    failing = ScriptedWorker("a", [Unavailable(SECRET)])
    for workers in (pair(), [failing, pair()[1]]):
        async with traced(workers, FixedConductor(TWO)) as (served, exporter):
            await served.ask(SECRET, model="podium-ultra")
        result = "".join(span.to_json() for span in exporter.get_finished_spans())
        assert SECRET not in result
        assert "run_" in result


async def test_calls_for_planning_belong_to_the_run_and_failed_ones_are_errors() -> None:
    workers = pair()
    planner = ScriptedWorker("planner", [Unavailable("busy"), write(TWO, pool_of(workers))])
    async with traced(workers, ModelConductor(planner)) as (served, exporter):
        await served.ask(model="podium-ultra")
    planning = [s for s in exporter.get_finished_spans() if s.name == "chat planner"]
    run = by_name(exporter)["invoke_agent podium-ultra"]
    assert [parent_of(span) for span in planning] == [id_of(run)] * 2
    assert [span.status.status_code for span in planning] == [StatusCode.ERROR, StatusCode.UNSET]
    assert attributes(planning[0])["error.type"] == "_OTHER"


async def test_a_nested_run_belongs_to_its_step() -> None:
    inner = ConductorWorker()
    workers = [*pair(), inner]
    plans = (Workflow((Step("conductor", "split it"),)), Workflow((Step("a", "do it"),)))
    planner = ScriptedWorker("planner", [write(plan, pool_of(workers)) for plan in plans])
    async with traced(workers, ModelConductor(planner)) as (served, exporter):
        response = await served.ask(model="podium-ultra")
        assert response.status_code == 200, response.text
    runs = [s for s in exporter.get_finished_spans() if s.name.startswith("invoke_agent")]
    step = by_name(exporter)["step 0 conductor"]
    assert [parent_of(run) for run in runs].count(id_of(step)) == 1


async def test_a_request_to_a_worker_is_the_span_of_its_call() -> None:
    async with traced(pair(), FixedConductor(TWO)) as (served, exporter):
        await served.ask(model="a")
    (span,) = exporter.get_finished_spans()
    reported = attributes(span)
    assert reported["gen_ai.operation.name"] == "chat"
    assert (reported["gen_ai.request.model"], reported["gen_ai.provider.name"]) == ("a", "scripted")
    assert reported["gen_ai.usage.output_tokens"] == 5


async def test_a_request_joins_the_trace_that_it_names() -> None:
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    async with traced(pair(), FixedConductor(TWO)) as (served, exporter):
        await served.client.post(
            PLAIN,
            json={"ask": "Why?", "model": "a"},
            headers={"traceparent": f"00-{trace}-{parent}-01"},
        )
        await served.client.post(
            PLAIN, json={"ask": "Why?", "model": "a"}, headers={"traceparent": "nonsense"}
        )
    joined, own = exporter.get_finished_spans()
    assert joined.context is not None
    assert own.context is not None
    assert joined.context.trace_id == int(trace, 16)
    assert parent_of(joined) == int(parent, 16)
    assert own.parent is None


async def test_a_run_that_fails_and_a_request_that_is_refused_are_reported() -> None:
    failing = ScriptedWorker("a", [Unavailable("no")])
    alone = FixedConductor(Workflow((Step("a", "do it"),)))
    async with traced([failing], alone) as (served, exporter):
        status = (await served.ask(model="podium-ultra")).status_code
        await served.client.post(PLAIN, json={})
    assert by_name(exporter)["invoke_agent podium-ultra"].status.status_code == StatusCode.ERROR
    requests = [s for s in exporter.get_finished_spans() if s.name == f"POST {PLAIN}"]
    assert [attributes(span)["http.response.status_code"] for span in requests] == [status, 400]
    assert requests[1].status.status_code == StatusCode.UNSET


POOL = """
[server]
traces = true

[conductor]
kind = "router"

[store]
path = "runs.db"

[[worker]]
name = "echo"
provider = "scripted"
options = { reply = "forty two" }
"""


def settings(directory: Path) -> Settings:
    file = directory / "podium.toml"
    file.write_text(POOL, "utf-8")
    return load(file)


async def test_spans_reach_a_collector_over_the_wire(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[ExportTraceServiceRequest] = []

    async def collect(request: web.Request) -> web.Response:
        received.append(ExportTraceServiceRequest.FromString(await request.read()))
        return web.Response(content_type="application/x-protobuf")

    collector = web.Application()
    collector.router.add_post("/v1/traces", collect)
    runner = web.AppRunner(collector)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{runner.addresses[0][1]}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "our-podium")

    async def find() -> Settings:
        return settings(tmp_path)

    async with serving(whole_application(find)) as served:
        body = {"model": "podium", "messages": [{"role": "user", "content": "Why?"}]}
        response = await served.client.post("/v1/chat/completions", json=body)
        assert response.status_code == 200
    await runner.cleanup()
    resources = [resource for message in received for resource in message.resource_spans]
    scopes = [scope for resource in resources for scope in resource.scope_spans]
    names = {span.name for scope in scopes for span in scope.spans}
    assert {"POST /v1/chat/completions", "invoke_agent podium", "chat echo"} <= names
    reported = {item.key: item.value.string_value for item in resources[0].resource.attributes}
    assert reported["service.name"] == "our-podium"


async def test_without_the_extra_the_message_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "podium.server.records.traces")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)

    async def find() -> Settings:
        return settings(tmp_path)

    with pytest.raises(
        ConfigError, match=r"server.traces needs the extra otel .*; install it: .*otel"
    ):
        async with serving(whole_application(find)):
            pass


async def test_trace_has_guardrail_actions_without_reasons() -> None:
    def look(checked: GuardrailInput) -> Verdict:
        return Verify("b", checked.text, lambda said: Note(f"it said {said}"))

    guard = Guardrail("judged", look, stages=("question", "answer"))
    alone = FixedConductor(Workflow((Step("a", "draft it"),)))
    async with traced(pair(), alone, [guard]) as (served, exporter):
        await served.ask(SECRET, model="podium-ultra")
    spans = exporter.get_finished_spans()
    run = next(span for span in spans if span.name.startswith("invoke_agent"))
    step = next(span for span in spans if span.name == "step 0 a")
    assert [parent_of(span) for span in spans if span.name == "chat b-1"] == [
        id_of(run),
        id_of(step),
    ]
    events = [dict(event.attributes or {}) for event in (*run.events, *step.events)]
    assert events == [
        {"podium.guardrail": "judged", "podium.stage": where, "podium.action": "noted"}
        for where in ("question", "answer")
    ]
    assert SECRET not in repr([(span.attributes, span.events) for span in spans])
