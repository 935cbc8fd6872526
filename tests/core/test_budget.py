from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from podium.core.budget import (
    Budget,
    CallReservation,
    Ledger,
    Spent,
    cap_output,
    estimate_input_tokens,
)
from podium.core.errors import BudgetExhausted, ConfigError
from podium.core.pool import CONDUCTOR_PROVIDER, Limits, Pool, WorkerProfile
from podium.core.request import (
    NO_USAGE,
    UNKNOWN_USAGE,
    Image,
    Message,
    Price,
    Request,
    Tool,
    ToolCall,
    ToolResult,
    Usage,
    user,
)

ASK = Request((user("a question of about ten tokens"),), max_tokens=1000)
DEAR = WorkerProfile(name="dear", price=Price(input=0.0, output=1000.0))


def taken(ledger: Ledger, profile: WorkerProfile = DEAR, request: Request = ASK) -> CallReservation:
    reservation = ledger.reserve(profile, request)
    assert reservation is not None
    return reservation


def test_the_call_after_the_last_one_is_refused() -> None:
    ledger = Ledger(Budget(calls=2))
    taken(ledger)
    taken(ledger)
    with pytest.raises(BudgetExhausted, match="the cap on calls is 2"):
        ledger.reserve(DEAR, ASK)


def test_the_use_of_a_tool_counts_as_a_call_and_costs_nothing_else() -> None:
    ledger = Ledger(Budget(calls=2))
    taken(ledger)
    ledger.count_tool_call()
    assert (ledger.spent.calls, ledger.spent.tokens, ledger.spent.usd) == (2, 0, 0.0)
    with pytest.raises(BudgetExhausted, match="the cap on calls is 2"):
        ledger.count_tool_call()


def test_output_is_cut_down_to_the_money_that_is_left() -> None:
    reservation = taken(Ledger(Budget(usd=0.5)))
    assert reservation.max_tokens == 500
    assert cap_output(ASK, DEAR, reservation).max_tokens == 500


def test_several_answers_are_reserved_and_cut_down_together() -> None:
    three = replace(ASK, extra={"n": 3})
    assert taken(Ledger(Budget(usd=9.0)), request=three).usd == pytest.approx(3.0)
    assert taken(Ledger(Budget(usd=0.6)), request=three).max_tokens == 200
    reservation = taken(Ledger(Budget(usd=0.048)), request=three)
    assert reservation.max_tokens == 16
    assert reservation.usd == pytest.approx(0.048)
    with pytest.raises(BudgetExhausted, match="usd"):
        Ledger(Budget(usd=0.047)).reserve(DEAR, three)


def test_output_is_cut_down_to_the_tokens_that_are_left() -> None:
    ledger = Ledger(Budget(tokens=200))
    reservation = taken(ledger)
    assert reservation.tokens <= 200
    assert reservation.max_tokens is not None
    assert reservation.max_tokens < 200


def test_a_reservation_is_at_most_a_share_of_what_is_left() -> None:
    ledger = Ledger(Budget(usd=0.5))
    first = ledger.reserve(DEAR, ASK, budget_divisor=5)
    second = ledger.reserve(DEAR, ASK, budget_divisor=5)
    assert first is not None
    assert second is not None
    assert (first.max_tokens, second.max_tokens) == (100, 80)
    ledger.settle(first, UNKNOWN_USAGE, None)
    assert ledger.spent.usd == pytest.approx(0.1)


def test_a_share_is_never_too_small_to_be_worth_a_call() -> None:
    reservation = Ledger(Budget(usd=0.02)).reserve(DEAR, ASK, budget_divisor=5)
    assert reservation is not None
    assert reservation.max_tokens == 16


def test_an_unused_reservation_returns_its_call() -> None:
    ledger = Ledger(Budget(calls=1, usd=1.0))
    ledger.release(taken(ledger))
    assert taken(ledger).max_tokens == 1000


def test_output_never_passes_the_workers_own_limit_or_its_window() -> None:
    small = WorkerProfile(name="small", limits=Limits(max_output_tokens=500, context_window=300))
    reservation = taken(Ledger(Budget()), small)
    sent = cap_output(ASK, small, reservation)
    assert sent.max_tokens is not None
    assert 270 < sent.max_tokens < 300
    roomy = replace(small, limits=Limits(max_output_tokens=500))
    assert cap_output(ASK, roomy, reservation).max_tokens == 500
    assert cap_output(replace(ASK, max_tokens=5), roomy, reservation).max_tokens == 5


def test_a_high_prompt_estimate_does_not_cut_the_answer_short() -> None:
    limits = Limits(max_output_tokens=2000, context_window=10_000)
    worker = WorkerProfile(name="worker", limits=limits)

    def capped(bytes_: int) -> int | None:
        request = Request((user("x" * bytes_),))
        return cap_output(request, worker, CallReservation()).max_tokens

    assert capped(3 * 9_000) == 999, "by the cautious guess"
    assert capped(3 * 9_900) == 2000, "full by that guess, though there is room at 4 bytes a token"
    assert capped(4 * 9_000) == 1000
    assert capped(4 * 10_000) == 2000, "no room by any guess: the provider refuses it"


def test_tools_results_and_pictures_count_as_input() -> None:
    plain = estimate_input_tokens(ASK)
    long = "x" * 3000
    picture = Image(url="https://x/y")
    shown = ToolResult("1", "", images=(picture,))
    for part in (ToolResult("1", long), ToolCall("1", "f", long), picture, shown):
        request = Request((*ASK.messages, Message("user", (part,))))
        assert estimate_input_tokens(request) >= plain + 1000
    tool = Tool("f", long, {"type": "object"})
    assert estimate_input_tokens(Request(ASK.messages, tools=(tool,))) >= plain + 1000


def test_extra_fields_count_as_input() -> None:
    more = replace(ASK, extra={"documents": ["words " * 100]})
    assert estimate_input_tokens(more) > estimate_input_tokens(ASK) + 100


def test_half_a_surrogate_pair_has_a_token_estimate() -> None:
    assert estimate_input_tokens(Request((user("\ud800"),))) == 2


def test_a_call_that_must_wait_for_settlement_gets_none() -> None:
    ledger = Ledger(Budget(usd=1.0))
    first = taken(ledger)
    assert ledger.reserve(DEAR, ASK) is None
    ledger.settle(first, Usage(10, 100, 0, 0, 0), 0.1)
    assert taken(ledger).max_tokens == 900


def test_money_that_is_really_spent_is_refused_not_waited_for() -> None:
    ledger = Ledger(Budget(usd=1.0))
    ledger.settle(taken(ledger), Usage(10, 1000, 0, 0, 0), 1.0)
    with pytest.raises(BudgetExhausted, match=r"the cap on usd is \$1"):
        ledger.reserve(DEAR, ASK)


def test_unknown_usage_is_charged_at_the_full_reservation() -> None:
    ledger = Ledger(Budget(usd=1.0))
    ledger.settle(taken(ledger), UNKNOWN_USAGE, None)
    assert ledger.spent.usd == pytest.approx(1.0)


async def test_settling_wakes_waiting_calls() -> None:
    ledger = Ledger(Budget(usd=1.0))
    first = taken(ledger)
    waiting = asyncio.create_task(ledger.wait_for_change())
    await asyncio.sleep(0)
    assert not waiting.done()
    ledger.settle(first, NO_USAGE, 0.0)
    await asyncio.wait_for(waiting, 1)


def test_the_deadline_counts_what_was_spent_before_a_resume() -> None:
    now = 100.0
    ledger = Ledger(Budget(seconds=10), Spent(seconds=4), clock=lambda: now)
    assert ledger.seconds_left == 6
    now = 107.0
    with pytest.raises(BudgetExhausted, match="the cap on seconds is 10"):
        ledger.reserve(DEAR, ASK)


def test_a_cap_on_money_needs_prices() -> None:
    pool = Pool((DEAR, WorkerProfile(name="mystery")))
    with pytest.raises(ConfigError, match="no price is known for mystery"):
        Budget(usd=1.0).check(pool)
    Budget(usd=1.0, allow_unpriced=True).check(pool)
    with pytest.raises(ConfigError, match="no price is known for mystery"):
        Ledger(Budget(usd=1.0)).reserve(pool["mystery"], ASK)


def test_a_conductor_in_the_pool_needs_no_price_of_its_own() -> None:
    nested = WorkerProfile(name="conductor", provider=CONDUCTOR_PROVIDER)
    Budget(usd=1.0).check(Pool((DEAR, nested)))


@pytest.mark.parametrize("cap", [-1.0, float("nan"), float("inf")])
def test_an_invalid_cap_is_refused(cap: float) -> None:
    with pytest.raises(ConfigError, match=r"budget\.usd is"):
        Budget(usd=cap)


def test_a_narrowed_budget_has_the_lower_of_each_cap() -> None:
    budget = Budget(calls=5, usd=1.0, depth=2)
    assert budget.narrow({"calls": 9, "usd": 0.5, "tokens": 100, "depth": 0}) == Budget(
        calls=5, usd=0.5, tokens=100, depth=0
    )
    assert budget.narrow({"calls": None, "tokens": None}) is budget


def test_an_unpriced_worker_is_named_once() -> None:
    unpriced = WorkerProfile(name="a")
    with pytest.raises(ConfigError, match="no price is known for a; set a price"):
        Budget(usd=1).check((unpriced, unpriced))


def test_small_amounts_of_money_are_printed_without_an_exponent() -> None:
    assert str(BudgetExhausted("usd", 1e-7)).endswith("the cap on usd is $0.0000001")
    assert str(BudgetExhausted("usd", 20.5)).endswith("the cap on usd is $20.5")
    assert str(BudgetExhausted("usd", 0)).endswith("the cap on usd is $0")
