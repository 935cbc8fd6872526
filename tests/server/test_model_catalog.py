from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from podium.client.assembly import Assembly
from podium.conductors import Conductor, FixedConductor, ModelConductor, RulesConductor
from podium.config import ConductorSettings, Settings, WorkerSettings
from podium.core.budget import Budget
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Price
from podium.core.run import Tier
from podium.core.workflow import Step, Workflow
from podium.engine.runner import ConductorWorker, Options
from podium.server.api_error import ApiError
from podium.server.model_catalog import ModelCatalog, parse_tier, tier_fingerprint
from podium.workers import ScriptedWorker
from podium.workers.mcp import McpSettings

WORKERS = (ScriptedWorker("one", "1"), ScriptedWorker("two", "2"))
POOL = Pool(tuple(worker.profile for worker in WORKERS))


def names() -> ModelCatalog:
    return ModelCatalog(Assembly((*WORKERS, ConductorWorker()), POOL, RulesConductor()), Options())


@pytest.mark.parametrize(
    ("model", "tier"),
    [
        ("podium", "podium"),
        ("podium-mini", "mini"),
        ("podium-ultra", "ultra"),
        ("podium-ultra@0a1b", "ultra"),
        ("mini", None),
        ("gpt-5", None),
        ("gpt-5@0a1b", None),
    ],
)
def test_a_models_name_is_a_tiers_or_a_workers(model: str, tier: str | None) -> None:
    assert parse_tier(model) == tier


def test_tiers_and_workers_are_found_by_name() -> None:
    assert names().find("podium").tier == "podium"
    assert names().find("podium-mini").tier == "mini"
    assert names().find("two").worker is WORKERS[1]


def test_a_pinned_alias_is_the_tier_as_it_is_now() -> None:
    pinned = names().pins["podium-ultra"]
    assert pinned.startswith("podium-ultra@")
    assert names().find(pinned).tier == "ultra"
    assert names().find(pinned).name == "podium-ultra"


def test_a_stale_pin_is_refused_with_the_current_one() -> None:
    with pytest.raises(ApiError, match=names().pins["podium-ultra"]) as refused:
        names().find("podium-ultra@000000000000")
    assert (refused.value.status, refused.value.field) == (404, "model")


def test_a_conductor_in_the_pool_is_no_model_by_itself() -> None:
    assert "conductor" not in [listed.name for listed in names()]
    with pytest.raises(ApiError):
        names().find("conductor")


def test_the_fingerprint_changes_with_everything_that_shapes_an_answer() -> None:
    def of(
        pool: Pool = POOL,
        conductor: Conductor | None = None,
        options: Options | None = None,
    ) -> str:
        return tier_fingerprint(
            "ultra", Assembly(WORKERS, pool, conductor or RulesConductor()), options or Options()
        )

    def planner(model: str) -> ModelConductor:
        profile = WorkerProfile(name="planner", provider="openai", model=model)
        return ModelConductor(ScriptedWorker(profile, ""))

    def fixed(subtask: str) -> FixedConductor:
        return FixedConductor(Workflow((Step("one", subtask),)))

    dearer = replace(POOL.workers[0], price=Price(input=1, output=2))
    others = {
        of(),
        of(pool=Pool((dearer, POOL.workers[1]))),
        of(pool=replace(POOL, share_question=False)),
        of(conductor=ModelConductor(WORKERS[0])),
        of(conductor=ModelConductor(WORKERS[0], prompt="compact")),
        of(options=Options(max_steps=3)),
        of(options=Options(rounds=2)),
        of(options=Options(budget=Budget(calls=3))),
        of(conductor=planner("small")),
        of(conductor=planner("large")),
        of(conductor=fixed("Answer.")),
        of(conductor=fixed("Answer briefly.")),
        tier_fingerprint("mini", Assembly(WORKERS, POOL, RulesConductor()), Options()),
    }
    assert len(others) == 13
    assert of() == of()


CONFIGURED = Settings(
    source="podium.toml",
    workers=tuple(WorkerSettings(profile=worker.profile) for worker in WORKERS),
    conductor=ConductorSettings(worker=WorkerSettings(profile=WORKERS[0].profile)),
    mcp=(McpSettings(name="files", command="files", tools=("read",)),),
)


def pin(configured: Settings, tier: Tier = "ultra") -> str:
    return tier_fingerprint(
        tier, Assembly(WORKERS, POOL, ModelConductor(WORKERS[0])), Options(), configured
    )


def test_the_fingerprint_changes_with_how_workers_are_called_and_with_the_tools_they_have() -> None:
    first, second = CONFIGURED.workers
    (files,) = CONFIGURED.mcp
    odd = {"when": date(2027, 1, 31), "kinds": {"b", "a"}}
    others = {
        pin(CONFIGURED),
        pin(replace(CONFIGURED, mcp=())),
        pin(replace(CONFIGURED, mcp=(replace(files, tools=("read", "write")),))),
        pin(replace(CONFIGURED, workers=(replace(first, base_url="http://a.example"), second))),
        pin(replace(CONFIGURED, workers=(replace(first, options={"top_k": 3}), second))),
        pin(replace(CONFIGURED, workers=(replace(first, options=odd), second))),
        pin(replace(CONFIGURED, conductor=replace(CONFIGURED.conductor, temperature=1.0))),
    }
    assert len(others) == 7
    assert pin(CONFIGURED) == pin(replace(CONFIGURED, source="elsewhere"))


def test_the_planner_does_not_change_the_tier_without_plans() -> None:
    other = replace(CONFIGURED, conductor=ConductorSettings(kind="rules"))
    assert pin(CONFIGURED, "mini") == pin(other, "mini")
    assert pin(CONFIGURED, "podium") != pin(other, "podium")
