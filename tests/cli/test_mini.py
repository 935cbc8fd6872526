"""The mini tier by a learned router, on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.support import Podium
from podium.cli import session
from podium.conductors.plan import schema
from podium.core.json_schema import find_mismatch
from support.routed_pool import WORKERS, routed

__all__ = ["routed"]

POOL = f"""
[mini]
router = "router.json"
confidence = 0.0

[conductor]
kind = "rules"
{WORKERS}"""

PLAY = "Who wrote the play Hamlet?"


@pytest.fixture
def pool(routed: Path) -> Path:
    """A pool whose router knows that `cheap` cannot tell who wrote a play."""
    file = routed / "pool.toml"
    file.write_text(POOL, "utf-8")
    return file


def test_the_quality_bias_decides_between_the_cheapest_and_the_best(
    podium: Podium, pool: Path
) -> None:
    answers = {}
    for quality_bias in ("0", "1"):
        ended = podium(
            "ask", "--pool", pool, "--tier", "mini", "--quality-bias", quality_bias, "--json", PLAY
        )
        assert ended.code == 0
        (routing,) = [round_["routing"] for round_ in ended.json["rounds"]]
        assert routing["quality_bias"] == float(quality_bias)
        assert set(routing["scores"]) == {"cheap", "dear"}
        answers[quality_bias] = (routing["worker"], ended.json["answer"])
    assert answers == {"0": ("cheap", "I am cheap."), "1": ("dear", "I am dear.")}


def test_the_decision_is_shown_as_it_runs_and_afterwards(podium: Podium, pool: Path) -> None:
    asked = podium("ask", "--pool", pool, "--tier", "mini", "--quality-bias", "1", PLAY)
    shown = podium("runs", "show", "last")
    planned = podium("plan", "--pool", pool, "--tier", "mini", "--quality-bias", "1", PLAY)
    for ended in (asked, shown, planned):
        assert ended.code == 0
        assert "chose dear with confidence" in ended.out


def test_a_quality_bias_without_effect_is_refused(podium: Podium, pool: Path) -> None:
    too_far = podium("ask", "--pool", pool, "--tier", "mini", "--quality-bias", "1.5", PLAY)
    ultra = podium("ask", "--pool", pool, "--tier", "ultra", "--quality-bias", "0.5", PLAY)
    pool.write_text(POOL[POOL.index("[conductor]") :], "utf-8")
    without = podium("ask", "--pool", pool, "--tier", "mini", "--quality-bias", "0.5", PLAY)
    assert (too_far.code, ultra.code, without.code) == (2, 2, 2)
    assert "expected a number from 0 to 1, got 1.5" in too_far.complaint
    assert "for the tiers that route" in ultra.complaint
    assert "needs a learned router" in without.complaint


def test_a_quality_bias_is_refused_before_anything_is_fetched(
    podium: Podium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = []

    async def fetch_weights(*workers: object, offline: bool) -> None:
        fetched.append(workers)

    monkeypatch.setattr(session, "fetch_weights", fetch_weights)
    pool = tmp_path / "pool.toml"
    pool.write_text(POOL[POOL.index("[conductor]") :], "utf-8")
    for command in ("ask", "plan"):
        ended = podium(command, "--pool", pool, "--tier", "mini", "--quality-bias", "0.5", PLAY)
        assert (ended.code, fetched) == (2, [])
        assert "this pool has none" in ended.complaint
        assert podium(command, "--pool", pool, "--tier", "mini", PLAY).code == 0
        assert len(fetched) == 1
        fetched.clear()


def test_the_doctor_and_the_check_of_the_pool_say_how_the_mini_tier_is_served(
    podium: Podium, pool: Path
) -> None:
    for command in (("doctor",), ("pool", "check")):
        ended = podium(*command, "--pool", pool)
        assert ended.code == 0
        assert f"mini tier: routed by {pool.parent / 'router.json'}" in ended.out
        assert "quality bias 0.5; below a confidence of 0 the conductor plans" in ended.out


def test_the_check_of_the_pool_as_json_names_the_router_of_each_worker_that_it_may_choose(
    podium: Podium, pool: Path
) -> None:
    def routers() -> list[str | None]:
        checked = podium("pool", "check", "--pool", pool, "--json")
        assert checked.code == 0
        return [result["router"] for result in checked.json]

    planned = podium("plan", "--pool", pool, "--tier", "mini", "--json", PLAY)
    named = planned.json["routing"]["router"]
    assert routers() == [named, named]
    stranger = POOL.replace('"dear"', '"costly"').replace(
        "[mini]", '[mini]\non_pool_change = "narrow"'
    )
    pool.write_text(stranger, "utf-8")
    assert routers() == [named, None]
    assert "dear is now called costly" in podium("pool", "check", "--pool", pool, "--json").err
    pool.write_text(POOL[POOL.index("[conductor]") :], "utf-8")
    assert routers() == [None, None]


def test_a_plan_as_json_has_the_decision_and_can_be_executed(
    podium: Podium, pool: Path, tmp_path: Path
) -> None:
    planned = podium(
        "plan", "--pool", pool, "--tier", "mini", "--quality-bias", "1", "--json", PLAY
    )
    assert find_mismatch(planned.out, schema()) is None
    routing = planned.json["routing"]
    assert (routing["worker"], routing["quality_bias"]) == ("dear", 1)
    file = tmp_path / "plan.json"
    file.write_text(planned.out, "utf-8")
    assert podium("run", file, "--pool", pool, "--json").json["answer"] == "I am dear."
    unrouted = podium("plan", "--pool", pool, "--json", PLAY)
    assert "routing" not in unrouted.json


def test_the_doctor_and_the_check_of_the_pool_name_what_does_not_fit(
    podium: Podium, pool: Path
) -> None:
    pool.write_text(POOL.replace('"dear"', '"costly"'), "utf-8")
    for command in (("doctor",), ("pool", "check"), ("ask", "--tier", "mini", PLAY)):
        ended = podium(*command, "--pool", pool)
        assert ended.code == 2
        assert "dear is now called costly" in ended.complaint
    assert podium("ask", "--tier", "ultra", "--pool", pool, PLAY).code == 0, "ultra needs no router"
    shared = POOL.replace('"dear"', '"costly"').replace(
        "[mini]", '[mini]\non_pool_change = "narrow"'
    )
    pool.write_text(shared, "utf-8")
    assert "note: mini.router:" in podium("doctor", "--pool", pool).out
    ended = podium("ask", "--pool", pool, "--tier", "mini", PLAY)
    assert "note: mini.router:" in ended.out
    assert "I am cheap." in ended.out
