"""A server whose conductor is an evolved coordinator: answers, streams, traces and resumes are as
with any other."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")

from podium.core.run import TurnRole
from podium.engine.runner import Options
from podium.server.dialects.chat import CHAT
from podium.store import open_store
from podium.workers import ScriptedWorker
from podium_lab.evolution.coordinator import EvolvedConductor
from support.evolved import Reading, coordinator
from support.serving import application, serving

CHAT_ADDRESS = "/v1/chat/completions"
WORKERS = (
    ScriptedWorker("ann", "It is 42."),
    ScriptedWorker("bob", "ACCEPT"),
)


def evolved(*choices: tuple[str, TurnRole]) -> EvolvedConductor:
    return EvolvedConductor(coordinator(), Reading(*choices))


def asked(**changes: Any) -> dict[str, Any]:
    return {
        "model": "podium-ultra",
        "messages": [{"role": "user", "content": "What is 6 times 7?"}],
        **changes,
    }


async def test_a_client_gets_the_latest_workers_words_and_the_run_is_on_record(
    tmp_path: Path,
) -> None:
    conductor = evolved(("bob", "thinker"), ("ann", "worker"), ("bob", "verifier"))
    app = application(
        WORKERS,
        conductor=conductor,
        options=Options(rounds=5),
        store=await open_store(tmp_path / "runs.db"),
        dialects={CHAT_ADDRESS: CHAT},
    )
    async with serving(app) as served:
        response = await served.client.post(CHAT_ADDRESS, json=asked())
        assert response.json()["choices"][0]["message"]["content"] == "It is 42."
        run_id = response.headers["X-Podium-Run"]
        run = (await served.client.get(f"/v1/runs/{run_id}")).json()
        events = (await served.client.get(f"/v1/runs/{run_id}/events")).text
    assert [round_["role"] for round_ in run["rounds"]] == ["thinker", "worker", "verifier", None]
    planned = re.findall(r"^event: round_planned\r?\ndata: (.*)$", events, re.M)
    assert [json.loads(data)["role"] for data in planned] == ["thinker", "worker", "verifier", None]
    assert run["rounds"][-1]["accepts_answer"]
    assert (run["status"], run["answer"]) == ("answered", "It is 42.")


async def test_a_stream_sends_the_turns_and_then_the_worker_alone() -> None:
    conductor = evolved(("ann", "worker"), ("bob", "verifier"))
    app = application(
        WORKERS, conductor=conductor, options=Options(rounds=5), dialects={CHAT_ADDRESS: CHAT}
    )
    async with serving(app) as served:
        response = await served.client.post(CHAT_ADDRESS, json=asked(stream=True))
    assert "".join(_pieces(response.text)) == "It is 42."
    assert "ACCEPT" not in response.text


async def test_little_effort_is_one_turn_and_that_is_a_workers() -> None:
    conductor = evolved(("ann", "thinker"))
    app = application(
        WORKERS, conductor=conductor, options=Options(rounds=5), dialects={CHAT_ADDRESS: CHAT}
    )
    async with serving(app) as served:
        response = await served.client.post(CHAT_ADDRESS, json=asked(reasoning_effort="low"))
    assert response.json()["choices"][0]["message"]["content"] == "It is 42."


async def test_another_coordinator_is_another_pin() -> None:
    names = []
    for workers in (("ann", "bob"), ("bob", "ann")):
        conductor = EvolvedConductor(coordinator(workers), Reading(("ann", "worker")))
        async with serving(application(WORKERS, conductor=conductor)) as served:
            listed = (await served.client.get("/v1/models")).json()["data"]
            names.append({model["id"] for model in listed if "ultra@" in model["id"]})
    assert names[0].isdisjoint(names[1])


def _pieces(body: str) -> list[str]:
    lines = [line.removeprefix("data: ") for line in body.splitlines() if line.startswith("data: ")]
    chunks = [json.loads(line) for line in lines if line != "[DONE]"]
    return [choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"]]
