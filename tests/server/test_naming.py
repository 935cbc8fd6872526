from __future__ import annotations

from dataclasses import replace

import pytest

from podium.budget import Budget
from podium.conductor import ModelConductor, RulesConductor
from podium.pool import Pool
from podium.providers import ScriptedWorker
from podium.runner import ConductorWorker, Options
from podium.server.naming import Names, fingerprint
from podium.server.refusal import Refusal
from podium.usage import Price

WORKERS = (ScriptedWorker("one", "1"), ScriptedWorker("two", "2"))
POOL = Pool(tuple(worker.profile for worker in WORKERS))


def names() -> Names:
    return Names((*WORKERS, ConductorWorker()), POOL, RulesConductor(), Options())


def test_tiers_and_workers_are_found_by_name() -> None:
    assert names().find("podium").tier == "podium"
    assert names().find("podium-mini").tier == "mini"
    assert names().find("two").worker is WORKERS[1]


def test_a_pinned_alias_is_the_tier_as_it_is_now() -> None:
    pinned = names().pins["podium-ultra"]
    assert pinned.startswith("podium-ultra@")
    assert names().find(pinned).tier == "ultra"
    assert names().find(pinned).name == "podium-ultra"


def test_a_pin_of_something_else_is_refused_and_told_what_it_is_now() -> None:
    with pytest.raises(Refusal, match=names().pins["podium-ultra"]) as refused:
        names().find("podium-ultra@000000000000")
    assert (refused.value.status, refused.value.field) == (404, "model")


def test_a_conductor_in_the_pool_is_no_model_by_itself() -> None:
    assert "conductor" not in [listed.name for listed in names()]
    with pytest.raises(Refusal):
        names().find("conductor")


def test_the_fingerprint_changes_with_everything_that_shapes_an_answer() -> None:
    def of(
        pool: Pool = POOL,
        conductor: RulesConductor | ModelConductor | None = None,
        options: Options | None = None,
    ) -> str:
        return fingerprint("ultra", pool, conductor or RulesConductor(), options or Options())

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
        fingerprint("mini", POOL, RulesConductor(), Options()),
    }
    assert len(others) == 9
    assert of() == of()
