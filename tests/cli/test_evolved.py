"""A coordinator over a tiny model of random weights, from the command line: asked, planned with and
measured."""

from __future__ import annotations

import asyncio
import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from cli.support import RULES, MakePool, Podium
from podium.cli import models as fetching
from podium.cli.options import PoolOptions, check_can_resume, load_settings
from podium.conductors.evolved_turns import CoordinatorDescription, read_description
from podium.config import Settings, load
from podium.core.errors import ConfigError
from podium.core.run import Run
from podium.server.startup import create_application
from podium_lab.evolution.hidden_states import HiddenStateReader
from support.serving import serving
from support.tiny_model import one_thread, tiny_model

np = pytest.importorskip("numpy")
pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("gguf")

from podium_lab.evolution.coordinator import Coordinator

pytestmark = pytest.mark.torch

__all__ = ["one_thread"]

QUESTION = "What is 6 times 7?"
MATRIX = "model.layers.1.mlp.up_proj.weight"
REPLIES = {"ann": "41", "bob": "42"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that has bob work when it reads the question."""
    directory = tmp_path_factory.mktemp("evolved")
    base = str(tiny_model(directory / "base"))
    growth = np.linspace(-0.3, 0.3, 48).astype(np.float32)

    async def read() -> Any:
        reader = HiddenStateReader(base)
        state = await reader.read(f"user: {QUESTION}\n", ((MATRIX, tuple(growth.tolist())),))
        await reader.close()
        return state

    state = asyncio.run(read())
    described = CoordinatorDescription(
        workers=("ann", "bob"), base=base, width=48, matrices=(MATRIX,), ranks=(48,), turns=1
    )
    head = np.zeros((described.rows, 48), np.float32)
    head[1] = head[3] = state  # bob, and the role of a worker
    numbers = np.concatenate([growth, head.ravel()])
    Coordinator(described, numbers).save(directory / "coordinator")
    return directory / "coordinator"


def test_a_question_goes_to_the_worker_that_the_coordinator_prefers(
    podium: Podium, make_pool: MakePool, trained: Path
) -> None:
    pool = make_pool(REPLIES, head=f'[conductor]\nkind = "evolved"\ncoordinator = "{trained}"\n')
    asked = podium("ask", "--pool", pool, "--tier", "ultra", "--json", QUESTION)
    assert asked.code == 0, asked.err
    assert asked.json["answer"] == "42"
    assert asked.json["conductor"].startswith("evolved(")
    assert [round_["role"] for round_ in asked.json["rounds"]] == ["worker"]
    assert f"conductor: evolved ({trained})\n" in podium("doctor", "--pool", pool).out
    said = podium("ask", "--pool", pool, QUESTION).out
    assert "plan by evolved(" in said
    assert "): a turn as worker\n" in said
    planned = podium("plan", "--pool", pool, "--conductor", "evolved", "--json", QUESTION)
    assert [step["worker"] for step in planned.json["steps"]] == ["bob"]


def test_a_coordinator_can_be_named_on_the_command_line(
    podium: Podium, make_pool: MakePool, trained: Path
) -> None:
    led = ("--conductor", f"evolved:{trained}", "--pool", make_pool(REPLIES))
    assert podium("ask", *led, "-q", QUESTION).out.strip() == "42"
    assert podium("ask", *led, "--exclude", "bob", "-q", QUESTION).out.strip() == "41"


def test_unusable_pools_are_refused(podium: Podium, make_pool: MakePool, trained: Path) -> None:
    led = ("--conductor", f"evolved:{trained}", "--pool", make_pool({"ann": "41", "cid": "42"}))
    ended = podium("ask", *led, QUESTION)
    assert ended.code == 2
    assert "added: cid; removed: bob" in ended.complaint
    ended = podium("ask", "--conductor", "evolved", "--pool", make_pool(REPLIES), QUESTION)
    assert (ended.code, "needs a coordinator" in ended.complaint) == (2, True)


def test_a_run_continues_only_by_the_coordinator_that_led_it(
    podium: Podium, make_pool: MakePool, trained: Path, tmp_path: Path
) -> None:
    pool = make_pool(REPLIES, head=RULES)
    led = ("--conductor", f"evolved:{trained}", "--pool", pool)
    stopped = podium("ask", *led, "--budget-calls", "0", QUESTION)
    assert stopped.code == 3
    assert f"--conductor evolved:{trained}" in stopped.complaint  # as it is to be gone on with
    resume = ("runs", "resume", "last", "--budget-calls", "2", "--json")
    refused = podium(*resume, "--pool", pool)
    assert refused.code == 2
    assert "was planned by evolved(" in refused.complaint
    assert "and the conductor here is rules; configure that one in [conductor]" in refused.complaint
    Coordinator.blank(read_description(trained)).save(tmp_path / "other")
    head = '[conductor]\nkind = "evolved"\ncoordinator = "{}"\n'
    other = podium(*resume, "--pool", make_pool(REPLIES, head=head.format(tmp_path / "other")))
    assert other.code == 2
    assert "and the conductor here is evolved(" in other.complaint
    configured = podium(*resume, "--pool", make_pool(REPLIES, head=head.format(trained)))
    assert (configured.code, configured.json["answer"]) == (0, "42")


@pytest.mark.parametrize(("led", "refused"), [("model(gone)", True), ("fixed", False)])
def test_a_coordinator_does_not_resume_the_runs_of_others(
    make_pool: MakePool, trained: Path, led: str, refused: bool
) -> None:
    head = f'[conductor]\nkind = "evolved"\ncoordinator = "{trained}"\n'
    settings = asyncio.run(load_settings(PoolOptions(pool=make_pool(REPLIES, head=head)), {}))
    run = Run(
        id="run_1",
        question=QUESTION,
        status="running",
        pool=settings.pool,
        conductor=led,
        created_at="2026-11-15T00:00:00.000+00:00",
    )
    with pytest.raises(ConfigError, match="planned by model.gone.") if refused else nullcontext():
        check_can_resume(run, settings)


def test_a_named_conductor_resumes_the_run(
    podium: Podium, make_pool: MakePool, trained: Path
) -> None:
    pool = make_pool(REPLIES, head=RULES)
    led = ("--conductor", f"evolved:{trained}", "--pool", pool)
    for conductor in (f"evolved:{trained}", "rules"):
        podium("ask", *led, "--budget-calls", "0", QUESTION)
        again = ("--conductor", conductor, "--pool", pool, "--budget-calls", "5")
        assert podium("runs", "resume", "last", *again, "--json").code == 0


def test_a_coordinator_is_measured_by_its_directory(
    podium: Podium, make_pool: MakePool, trained: Path, tmp_path: Path
) -> None:
    suite = tmp_path / "suite.jsonl"
    task = {"question": QUESTION, "answer": "42", "grader": "number"}
    suite.write_text(json.dumps(task))
    strategies = f"evolved:{trained},single:ann"
    ended = podium(
        *("eval", "run", suite, "--strategy", strategies),
        *("--pool", make_pool(REPLIES, head=RULES), "--json", "--output", tmp_path / "out"),
    )
    assert ended.code == 0, ended.err
    accuracy = {row["strategy"]: row["accuracy"] for row in ended.json["rows"]}
    assert accuracy == {f"evolved:{trained}": 1.0, "single:ann": 0.0}


async def test_the_weights_of_the_model_that_reads_are_fetched_before(
    make_pool: MakePool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fetched = []

    async def fetch(model: str, *, offline: bool) -> None:
        fetched.append((model, offline))

    monkeypatch.setattr(fetching, "fetch", fetch)
    described = CoordinatorDescription(
        workers=("ann", "bob"), base="smollm2-135m-instruct", width=4
    )
    Coordinator.blank(described).save(tmp_path / "blank")
    pool = make_pool(REPLIES, head='[conductor]\nkind = "evolved"\ncoordinator = "blank"\n')
    settings = load(pool)
    await fetching.fetch_weights(settings.workers, settings.conductor, offline=True)
    assert fetched == [("smollm2-135m-instruct", True)]


async def test_a_server_loads_the_model_that_reads_before_it_is_ready(
    make_pool: MakePool, trained: Path
) -> None:
    head = f'[conductor]\nkind = "evolved"\ncoordinator = "{trained}"\n'
    settings = load(make_pool(REPLIES, head=head))

    async def find() -> Settings:
        return settings

    async with serving(create_application(find)) as served:
        while served.service.loader.is_loading:
            await asyncio.sleep(0.01)
        conductor: Any = (await served.service.podium.open()).assembly.conductor
        assert conductor.local_model._model.is_loaded
        body = {"model": "podium-ultra", "messages": [{"role": "user", "content": QUESTION}]}
        answer = await served.client.post("/v1/chat/completions", json=body)
        assert answer.json()["choices"][0]["message"]["content"] == "42"
