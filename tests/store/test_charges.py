from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from podium.core.budget import Spent
from podium.core.request import UNKNOWN_USAGE, Usage
from podium.core.run import Attempt, Run
from podium.server.model_catalog import MODEL_NAMES
from podium.store.keys import MAX_TOKENS, MODEL_OF, Amount, charge_of

DAY = "2026-01-02"


def with_calls(run: Run, *calls: Attempt) -> Run:
    """The run, with these calls as its first step's."""
    (round_,) = run.rounds
    first = replace(round_.steps[0], attempts=calls)
    return replace(run, rounds=(replace(round_, steps=(first, *round_.steps[1:])),))


def test_a_run_is_charged_what_its_calls_used(make_run: Callable[..., Run]) -> None:
    charge = charge_of(replace(make_run(), owner="key_1", tier="mini"), DAY)
    used = charge.usage
    assert (used.key_id, used.day, used.model) == ("key_1", DAY, "podium-mini")
    assert (used.input_tokens, used.output_tokens, used.cost_usd) == (30, 15, 0.75)
    assert charge.amount == Amount(0.75, 45)
    assert used.requests == 0


def test_a_run_is_charged_under_the_name_that_clients_ask_for() -> None:
    assert dict(MODEL_OF) == dict(MODEL_NAMES)


def test_unreported_usage_is_charged_as_estimated(
    make_run: Callable[..., Run],
) -> None:
    unknown = Attempt("solo", UNKNOWN_USAGE, None, 1.0, 2.0, "cut off")
    run = with_calls(make_run(steps=2), unknown)
    used = charge_of(replace(run, spent=Spent(2, 1015, 5.25, 1.0)), DAY).usage
    assert (used.input_tokens, used.output_tokens, used.cost_usd) == (10, 5, 0.25)
    assert (used.unknown_usage_count, used.assumed_tokens) == (1, 1000)
    assert (used.unknown_cost_count, used.assumed_usd) == (1, 5.0)


def test_reported_usage_is_not_estimated(make_run: Callable[..., Run]) -> None:
    run = replace(make_run(), spent=Spent(9, 10**6, 99.0, 1.0))
    used = charge_of(run, DAY).usage
    assert (used.assumed_tokens, used.assumed_usd) == (0, 0.0)


def test_impossible_values_are_not_believed(make_run: Callable[..., Run]) -> None:
    calls = (
        Attempt("solo", Usage(-5, 1, 0, 0, 0), -1.0, 1.0, 2.0),
        Attempt("solo", Usage(MAX_TOKENS + 1, 1, 0, 0, 0), float("inf"), 1.0, 2.0),
        Attempt("solo", Usage(1, 1, 0, 0, 0), float("nan"), 1.0, 2.0),
    )
    run = with_calls(replace(make_run(steps=1), spent=Spent()), *calls)
    used = charge_of(run, DAY).usage
    assert (used.input_tokens, used.output_tokens, used.cost_usd) == (1, 1, 0.0)
    assert (used.unknown_usage_count, used.unknown_cost_count) == (1, 1)
