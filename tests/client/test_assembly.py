from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from podium import AsyncPodium
from podium.cli.options import exclude_workers
from podium.client.assembly import assemble, load_router, read_workflow_file
from podium.conductors import (
    FixedConductor,
    LearnedRouterConductor,
    RulesConductor,
    conductor_for_tier,
)
from podium.config import load
from podium.core.errors import ConfigError, MalformedPlan
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Reply, Request
from podium.core.worker import Worker
from podium.core.workflow import Step, Workflow
from podium.workers import Http
from podium_lab.evolution import hidden_states as reading
from support.routed_pool import WORKERS, routed

__all__ = ["routed"]

SCRIPTED = """
[[worker]]
name = "a"
provider = "scripted"
options = { reply = "answer of a" }

[[worker]]
name = "lead"
provider = "podium"
fallback = "a"
"""


def settings_file(directory: Path, text: str) -> Path:
    file = directory / "podium.toml"
    file.write_text(text, "utf-8")
    return file


def test_settings_become_workers_and_a_conductor(tmp_path: Path) -> None:
    settings = load(settings_file(tmp_path, '[conductor]\nkind = "rules"\n' + SCRIPTED))
    assembly = assemble(settings, {}, Http())
    assert [worker.profile.name for worker in assembly.workers] == ["a", "lead"]
    assert isinstance(assembly.conductor, RulesConductor)
    assert assembly.pool["lead"].fallback == "a"


async def test_a_trained_conductor_falls_back_to_the_worker_that_was_named(tmp_path: Path) -> None:
    text = """
    [conductor]
    model = "a"
    prompt = "trained"
    fallback = "b"
    [[worker]]
    name = "b"
    provider = "scripted"
    options = { reply = "answer of b" }
    [store]
    path = "runs.db"
    """
    settings = load(settings_file(tmp_path, SCRIPTED + text))
    assert settings.conductor.prompt == "trained"
    async with AsyncPodium(settings=settings) as podium:
        run = await podium.ask("why? " * 200)
    assert run.answer == "answer of b"


async def test_a_fixed_conductor_takes_what_plan_writes(tmp_path: Path) -> None:
    plan = {"question": "why?", "steps": [{"worker": "a", "subtask": "do", "access": []}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan), "utf-8")
    text = '[conductor]\nkind = "fixed"\nworkflow = "plan.json"\n[store]\npath = "runs.db"\n'
    settings = load(settings_file(tmp_path, text + SCRIPTED))
    async with AsyncPodium(settings=settings) as podium:
        run = await podium.ask("why?")
        assert (await (await podium.open()).store.load("last")).id == run.id
    assert (run.answer, run.conductor) == ("answer of a", "fixed")


async def test_a_nested_conductor_from_a_file_leads_a_run_of_its_own(tmp_path: Path) -> None:
    plan = {"steps": [{"worker": "lead", "subtask": "do", "access": []}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan), "utf-8")
    text = '[conductor]\nkind = "router"\n' + SCRIPTED.replace('fallback = "a"\n', "")
    settings = load(settings_file(tmp_path, text))
    workflow = read_workflow_file(tmp_path / "plan.json").workflow(settings.pool)
    async with AsyncPodium(settings=settings, store=tmp_path / "runs.db") as podium:
        run = await podium.run(workflow, "why?")
        begun = replace(run.rounds[0], steps=())
        cut_off = replace(run, status="interrupted", rounds=(begun,))
        await (await podium.open()).store.finish(cut_off)  # resuming uses the recorded settings
        again = await podium.resume(cut_off)
    for led in (run, again):
        assert (led.status, led.answer, led.conductor) == ("answered", "answer of a", "fixed")
        [step] = led.steps
        assert (step.worker, step.answered_by, step.error) == ("lead", "lead", None)
        [nested] = step.nested
        assert (nested.depth, nested.conductor) == (1, "router")
        assert [inner.worker for inner in nested.steps] == ["a"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "a workflow is an object"),
        ('{"steps": []}', "the list is empty"),
        ('{"steps": [{"worker": "b", "subtask": "x", "access": []}]}', "b"),
        ('{"steps": [{"worker": "a", "subtask": "x", "access": [1]}]}', "1"),
    ],
)
def test_a_workflow_file_that_cannot_be_used_says_why(
    tmp_path: Path, text: str, reason: str
) -> None:
    file = tmp_path / "plan.json"
    file.write_text(text, "utf-8")
    with pytest.raises((ConfigError, MalformedPlan), match=f"plan.json: .*{reason}"):
        read_workflow_file(file).workflow(Pool((WorkerProfile(name="a"),)))


def test_a_workflow_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="plan.json: there is no such file"):
        read_workflow_file(tmp_path / "plan.json")


def test_a_workflow_may_be_read_from_an_open_file() -> None:
    step = {"worker": "a", "subtask": "x", "access": []}
    file = read_workflow_file(io.StringIO(json.dumps({"question": "why?", "steps": [step]})))
    assert (file.question, file.name) == ("why?", "standard input")
    assert file.workflow(Pool((WorkerProfile(name="a"),))) == Workflow((Step("a", "x"),))


async def test_closing_closes_the_workers_that_hold_something_open() -> None:
    class Holding(Worker):
        profile = WorkerProfile(name="a")
        closed = 0

        async def reply(self, request: Request) -> Reply:
            return Reply("held")

        async def close(self) -> None:
            self.closed += 1

    worker = Holding()
    async with AsyncPodium([worker], FixedConductor(Workflow((Step("a", "do"),)))) as podium:
        await podium.ask("why?")
    assert worker.closed == 1


ROUTED = f"""
[mini]
router = "router.json"
{WORKERS}"""


def test_a_router_is_read_from_its_file_when_the_mini_tier_needs_it(routed: Path) -> None:
    text = ROUTED.replace("[mini]", "[mini]\nconfidence = 0.3\nquality_bias = 0.8")
    assembly = assemble(load(settings_file(routed, text)), {}, Http())
    mini = assembly.load_router()
    assert mini is not None
    assert (mini.confidence, mini.quality_bias, mini.warnings) == (0.3, 0.8, ())
    assert assembly.load_router() is mini
    assert isinstance(
        conductor_for_tier("mini", assembly.conductor, assembly.load_router), LearnedRouterConductor
    )
    assert (
        conductor_for_tier("ultra", assembly.conductor, assembly.load_router) is assembly.conductor
    )


def test_the_name_of_a_router_changes_with_its_file(routed: Path) -> None:
    from podium.conductors.routing import LearnedRouter

    settings = load(settings_file(routed, ROUTED))
    before = load_router(settings)
    file = routed / "router.json"
    router = LearnedRouter.load(file)
    first, *rest = router.workers
    replace(router, workers=(replace(first, cost=2.0), *rest)).save(file)
    after = load_router(settings)
    assert before is not None
    assert after is not None
    assert before.router_fingerprint != after.router_fingerprint


THIRD = '\n[[worker]]\nname = "new"\nprovider = "scripted"\n'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (ROUTED + THIRD, "new is new"),
        (ROUTED.replace('"dear"', '"costly"'), "dear is now called costly"),
        (ROUTED.replace("dear-model", "other-model"), "dear was the model dear-model"),
        (ROUTED.partition('[[worker]]\nname = "dear"')[0], "dear is gone"),
    ],
)
def test_a_pool_that_changed_since_training_is_refused_or_narrows_the_choice_with_a_warning(
    routed: Path, text: str, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        load_router(load(settings_file(routed, text)))
    assert 'on_pool_change = "narrow"' in str(refused.value)
    narrowed = text.replace("[mini]", '[mini]\non_pool_change = "narrow"')
    mini = load_router(load(settings_file(routed, narrowed)))
    assert mini is not None
    assert problem in mini.warnings[0]
    assert "chooses among those that both have" in mini.warnings[0]


def test_a_router_that_shares_no_worker_with_the_pool_is_always_refused(routed: Path) -> None:
    text = ROUTED.replace("cheap", "one").replace("dear", "two")
    narrowed = text.replace("[mini]", '[mini]\non_pool_change = "narrow"')
    with pytest.raises(ConfigError, match="trained with another pool") as refused:
        load_router(load(settings_file(routed, narrowed)))
    assert "on_pool_change" not in str(refused.value).partition("trained with")[2]


def test_workers_that_are_left_out_on_purpose_do_not_count_as_gone(routed: Path) -> None:
    settings = load(settings_file(routed, ROUTED))
    mini = load_router(exclude_workers(settings, {"dear"}))
    assert mini is not None
    assert mini.warnings == ()


def test_a_router_that_is_not_there_is_an_error_when_it_is_needed(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    assembly = assemble(load(settings_file(tmp_path, ROUTED)), {}, Http())
    with pytest.raises(ConfigError, match=r"router.json: No such file .*podium train router"):
        conductor_for_tier("mini", assembly.conductor, assembly.load_router)


def test_without_the_extra_the_error_says_what_to_install(
    routed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("podium.conductors.routing")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(ConfigError, match=r"needs the extra router .*; install it: .*router"):
        load_router(load(settings_file(routed, ROUTED)))


async def test_a_coordinator_is_led_by_with_a_reader_that_is_closed_in_the_end(
    tmp_path: Path,
) -> None:
    for package in ("numpy", *reading.PACKAGES):
        pytest.importorskip(package)
    from support.evolved import coordinator

    coordinator(("a", "lead")).save(tmp_path / "trained")
    head = '[conductor]\nkind = "evolved"\ncoordinator = "trained"\n'
    assembly = assemble(load(settings_file(tmp_path, head + SCRIPTED)), {}, Http())
    assert assembly.conductor.name == f"evolved({coordinator(('a', 'lead')).fingerprint})"
    assert assembly.hidden_state_reader is not None
    await assembly.close()
    assert assembly.hidden_state_reader._closed
