"""The mini tier by a learned router, through the dialects: the quality bias, the decision on
record, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from podium.conductors import ModelConductor, TierRouter
from podium.engine.runner import Options
from podium.server.dialects.anthropic import MESSAGES
from podium.server.dialects.chat import CHAT
from podium.server.dialects.responses import RESPONSES
from podium.store import open_store
from podium.workers import ScriptedWorker
from support.scripted_router import ScriptedRouter
from support.serving import Served, application, serving

REAL = {"/v1/chat/completions": CHAT, "/v1/responses": RESPONSES, "/v1/messages": MESSAGES}
SCORES = {"one": 0.3, "two": 0.8}
SAID = [{"role": "user", "content": "Why?"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": SAID},
    "/v1/responses": {"input": "Why?"},
    "/v1/messages": {"messages": SAID, "max_tokens": 100},
}


def workers() -> list[ScriptedWorker]:
    return [ScriptedWorker(name, f"{name} says") for name in SCORES]


async def ask(served: Served, path: str = "/v1/chat/completions", **body: Any) -> Any:
    body = {"model": "podium-mini", **BODIES[path], **body}
    response = await served.client.post(path, json=body)
    return response.status_code, response.json()


@pytest.mark.parametrize("path", REAL)
async def test_the_quality_bias_of_a_request_reaches_the_router_in_every_dialect(path: str) -> None:
    router = ScriptedRouter(SCORES)
    async with serving(application(workers(), mini=TierRouter(router), dialects=REAL)) as served:
        for wished in ({}, {"podium": {"quality_bias": 0}}, {"podium": {"quality_bias": 0.8}}):
            status, answer = await ask(served, path, **wished)
            assert status == 200
            said = "one says" if wished == {"podium": {"quality_bias": 0}} else "two says"
            assert said in json.dumps(answer)
    assert [quality_bias for _, _, quality_bias in router.asked] == [0.5, 0, 0.8]


@pytest.mark.parametrize("quality_bias", [-0.1, 1.1, "0.5", True])
async def test_an_invalid_quality_bias_is_refused_by_name(quality_bias: Any) -> None:
    app = application(workers(), mini=TierRouter(ScriptedRouter(SCORES)), dialects=REAL)
    async with serving(app) as served:
        status, refused = await ask(served, podium={"quality_bias": quality_bias})
    assert (status, refused["error"]["param"]) == (400, "podium.quality_bias")


async def test_a_quality_bias_without_effect_is_refused() -> None:
    app = application(workers(), mini=TierRouter(ScriptedRouter(SCORES)), dialects=REAL)
    plan = {"steps": [{"worker": "two", "subtask": "Speak.", "access": []}]}
    async with serving(app) as served:
        ultra = await ask(served, model="podium-ultra", podium={"quality_bias": 0.5})
        alone = await ask(served, model="two", podium={"quality_bias": 0.5})
        given = await ask(served, podium={"quality_bias": 0.5, "workflow": plan})
    async with serving(application(workers(), dialects=REAL)) as served:
        without = await ask(served, podium={"quality_bias": 0.5})
    trained = ModelConductor(ScriptedWorker("planner", []), prompt="trained")
    mini = TierRouter(ScriptedRouter(SCORES))
    app = application(workers(), conductor=trained, mini=mini, dialects=REAL)
    async with serving(app) as served:
        planned = await ask(served, model="podium", podium={"quality_bias": 0.5})
    refused = (ultra, alone, given, without, planned)
    assert [status for status, _ in refused] == [400] * 5
    said = [body["error"]["message"] for _, body in refused]
    assert "for the tiers that route" in said[0]
    assert "'two' is a single worker" in said[1]
    assert "this workflow is given" in said[2]
    assert "needs a learned router, and this pool has none" in said[3]
    assert "this pool's trained conductor plans every question" in said[4]


async def test_a_plan_shows_what_the_router_decided_without_a_call() -> None:
    pool = workers()
    app = application(pool, mini=TierRouter(ScriptedRouter(SCORES)), dialects=REAL)
    body = {"question": "Why?", "model": "podium-mini", "podium": {"quality_bias": 0.75}}
    async with serving(app) as served:
        response = await served.client.post("/v1/plan", json=body)
    shown = response.json()
    assert [step["worker"] for step in shown["workflow"]["steps"]] == ["two"]
    assert shown["routing"] == {
        "worker": "two",
        "confidence": 0.8,
        "scores": SCORES,
        "quality_bias": 0.75,
        "router": "0123456789ab",
        "min_confidence": 0.5,
        "escalated": False,
        "explanation": shown["routing"]["explanation"],
    }
    assert not any(worker.calls for worker in pool)


async def test_the_decision_and_the_quality_bias_are_kept_with_the_run(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "runs.db")
    app = application(
        workers(), mini=TierRouter(ScriptedRouter(SCORES)), dialects=REAL, store=store
    )
    body = {"model": "podium-mini", "messages": SAID, "podium": {"quality_bias": 0.7}}
    async with serving(app) as served:
        response = await served.client.post("/v1/chat/completions", json=body)
        run_id = response.headers["X-Podium-Run"]
        shown = (await served.client.get(f"/v1/runs/{run_id}")).json()
        events = (await served.client.get(f"/v1/runs/{run_id}/events")).text
        kept = await store.load(run_id)
    assert kept.quality_bias == 0.7
    routing = kept.rounds[0].routing
    assert routing is not None
    assert (routing.worker, routing.scores, routing.quality_bias) == ("two", SCORES, 0.7)
    assert shown["rounds"][0]["routing"]["router"] == "0123456789ab"
    assert "the router 0123456789ab chose two" in events


async def test_unsure_routing_is_answered_as_by_ultra() -> None:
    plan = json.dumps({"steps": [{"worker": "one", "subtask": "Think.", "access": []}]})
    planner = ScriptedWorker("planner", plan)
    mini = TierRouter(ScriptedRouter(SCORES), confidence=0.9)
    app = application(workers(), conductor=ModelConductor(planner), mini=mini, dialects=REAL)
    async with serving(app) as served:
        _, answer = await ask(served)
    assert answer["choices"][0]["message"]["content"] == "one says"
    assert planner.calls == 1


async def test_a_confidently_routed_answer_is_streamed_despite_more_rounds() -> None:
    mini = TierRouter(ScriptedRouter(SCORES), confidence=0.6)
    planner = ModelConductor(ScriptedWorker("planner", []))
    app = application(workers(), conductor=planner, mini=mini, options=Options(rounds=3))
    async with serving(app) as served:
        response = await served.ask(model="podium-mini", stream=True)
    document = [json.loads(line) for line in response.content.splitlines()]
    assert [item[0] for item in document] == ["begin", "text", "text", "end"]


async def test_a_pinned_alias_is_another_once_the_router_is() -> None:
    pins = []
    for fingerprint in ("0123456789ab", "ba9876543210"):
        mini = TierRouter(ScriptedRouter(SCORES, fingerprint=fingerprint))
        async with serving(application(workers(), mini=mini, dialects=REAL)) as served:
            pins.append(served.service.catalog.pins)
    changed = {name for name in pins[0] if pins[0][name] != pins[1][name]}
    assert changed == {"podium-mini", "podium"}
