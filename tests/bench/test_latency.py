"""The pure parts of `benchmarks latency`, over the plans that it measures."""

from __future__ import annotations

from statistics import median

import pytest

from benchmarks.engine import chain_workflow
from benchmarks.latency import (
    POOL,
    REPLY_TOKENS,
    first_call_share,
    measure_plans,
    read_plan,
    read_plans,
)
from podium.conductors.plan import write


def test_both_forms_hold_the_same_200_plans_of_three_steps() -> None:
    plans = read_plans(200)
    workflows = {form: [plan.workflow for plan in plans[form]] for form in plans}
    assert workflows["trained"] == workflows["json"]
    assert len({plan.text for plan in plans["trained"]}) == 200


def test_steps_begin_early_and_lists_late() -> None:
    plans = read_plans(200)
    share = {form: median(map(first_call_share, plans[form])) for form in plans}
    assert max(share.values()) <= 0.35
    lists = write(plans["json"][0].workflow, POOL)
    assert 0.35 < first_call_share(read_plan(lists)) < 1


async def test_replies_take_as_long_as_their_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.latency.first_token", lambda _: 0.0)
    monkeypatch.setattr("benchmarks.latency.TOKENS_A_SECOND", 600.0)
    plan = read_plan(write(chain_workflow("model-0"), POOL, layout="step-by-step"))
    found = await measure_plans([plan], 600.0)
    whole = (plan.tokens + len(plan.workflow) * REPLY_TOKENS) / 600
    assert whole <= found["conducted"].end < 2 * whole
    assert found["overlap"].end < found["conducted"].end
    assert found["direct"].end < found["overlap"].end
