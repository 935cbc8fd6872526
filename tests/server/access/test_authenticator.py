from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from podium.core.budget import Budget
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import UNKNOWN_USAGE, Price, Usage
from podium.core.run import Run
from podium.server.access import AccessPolicy, KeyAuthenticator, RequestCost
from podium.server.access.authenticator import (
    FAILURES_PER_MINUTE,
    KEY_CACHE_SECONDS,
    UNKNOWN_KEYS_PER_MINUTE,
)
from podium.server.api_error import ApiError, Reason
from podium.store.keys import SCOPES, Allowance, Rules
from server.access.support import NOON, POOL, Server

DAY = 86_400.0


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    yield server
    await server.access.close()


async def refused(server: Server, token: str | None, address: str = "") -> ApiError:
    with pytest.raises(ApiError) as refusal:
        await server.access.authenticate(token, address)
    return refusal.value


async def test_a_key_is_authenticated_with_its_rules(server: Server) -> None:
    rules = Rules(
        scopes=frozenset({"ask"}),
        tiers=frozenset({"mini"}),
        workers=frozenset({"gpt"}),
        exclude=frozenset({"anthropic"}),
        per_request=Allowance(usd=0.5),
    )
    principal = await server.principal(rules)
    (key,) = await server.keys.keys()
    assert (principal.key_id, principal.name) == (key.id, "Ada")
    assert (principal.scopes, principal.tiers, principal.workers) == (
        rules.scopes,
        rules.tiers,
        rules.workers,
    )
    assert principal.exclude == rules.exclude
    principal = await server.access.reserve(principal, model="podium-mini", tokens=1)
    assert principal.quota.narrow(Budget()) == Budget(usd=0.5)


@pytest.mark.parametrize("token", [None, "", "sk-other", "pk_0123_guessed"])
async def test_an_unknown_key_is_refused(server: Server, token: str | None) -> None:
    refusal = await refused(server, token)
    assert (refusal.reason, refusal.status) == ("unauthenticated", 401)


async def test_the_id_of_a_key_is_not_enough(server: Server) -> None:
    token = await server.token()
    wrong = token[:-1] + ("A" if token[-1] != "A" else "B")
    refusal = await refused(server, wrong)
    assert refusal.status == 401
    assert "Ada" not in str(refusal)
    assert str(refusal) == str(await refused(server, "pk_0123_guessed"))


async def test_a_revoked_key_is_refused_within_seconds(server: Server) -> None:
    token = await server.token()
    principal = await server.access.authenticate(token)
    await server.keys.revoke(principal.key_id)
    server.clock.now += KEY_CACHE_SECONDS
    refusal = await refused(server, token)
    assert refusal.status == 401
    assert "was revoked" in str(refusal)


async def test_an_expired_key_is_refused_at_once(server: Server) -> None:
    token = await server.token(expires_at="2026-01-02T12:00:01+00:00")
    await server.access.authenticate(token)
    server.clock.now += 1
    refusal = await refused(server, token)
    assert refusal.status == 401
    assert "has expired" in str(refusal)


async def test_a_key_is_looked_up_once_in_a_few_seconds_however_many_come(server: Server) -> None:
    token = await server.token()
    await asyncio.gather(*(server.access.authenticate(token) for _ in range(50)))
    assert server.keys.looked_up == 1
    server.clock.now += KEY_CACHE_SECONDS
    await asyncio.gather(*(server.access.authenticate(token) for _ in range(50)))
    assert server.keys.looked_up == 2


async def test_a_failing_store_refuses_with_a_retry_after(
    server: Server,
) -> None:
    token = await server.token()
    server.keys.broken = True
    refusal = await refused(server, token)
    assert (refusal.status, refusal.retry_after) == (503, 1.0)
    assert "disk" not in str(refusal), "what is wrong with the store is nothing for strangers"
    server.keys.broken = False
    await server.access.authenticate(token)


async def test_guessed_keys_neither_load_the_store_nor_block_known_keys(
    server: Server,
) -> None:
    token = await server.token()
    await server.access.authenticate(token)
    reasons = [
        (await refused(server, f"pk_{n}_x", address=f"10.0.{n // 200}.{n % 200}")).reason
        for n in range(UNKNOWN_KEYS_PER_MINUTE + 9)
    ]
    assert reasons[0] == "unauthenticated"
    assert reasons[-1] == "rate_limited"
    assert server.keys.looked_up <= UNKNOWN_KEYS_PER_MINUTE
    server.clock.now += KEY_CACHE_SECONDS
    await server.access.authenticate(token)


async def test_guessed_keys_do_not_keep_an_interrupted_run_from_resuming(
    server: Server, make_run: Callable[..., Run]
) -> None:
    owner, key = await server.token(), (await server.keys.keys())[0]
    for n in range(UNKNOWN_KEYS_PER_MINUTE):
        await refused(server, f"pk_{n}_x", address=f"10.0.{n // 200}.{n % 200}")
    assert (await refused(server, owner, "10.1.0.1")).reason == "rate_limited"
    async with server.access.shared_budget_for_run(replace(make_run(), owner=key.id)):
        assert (await server.access.authenticate(owner, "10.1.0.1")).key_id == key.id


@pytest.mark.parametrize("kind", ["another", "malformed", "wrong secret", "session"])
async def test_an_address_that_shows_too_many_wrong_keys_has_to_wait(
    server: Server, kind: str
) -> None:
    token, unseen = await server.token(), await server.token()
    principal = await server.access.authenticate(token)
    wrong = {
        "another": "pk_0123_guessed",
        "malformed": "sk-other",
        "wrong secret": token[:-2] + "!!",
        "session": f"ps_{principal.key_id.removeprefix('key_')}_9999999999_00ff",
    }[kind]
    reasons = [
        (await refused(server, wrong, "1.2.3.4")).reason for _ in range(FAILURES_PER_MINUTE + 1)
    ]
    assert reasons == ["unauthenticated"] * FAILURES_PER_MINUTE + ["rate_limited"]
    assert (await refused(server, unseen, "1.2.3.4")).retry_after == pytest.approx(0.6)
    await server.access.authenticate(token, "1.2.3.4")  # who is known may share the address
    await server.access.authenticate(unseen, "4.3.2.1")
    server.clock.now += 1
    assert (await refused(server, wrong, "1.2.3.4")).reason == "unauthenticated"


async def test_a_model_without_settled_requests_is_estimated_at_its_highest_input_cost() -> None:
    dear = WorkerProfile(name="dear", price=Price(input=1000.0, output=1.0))
    server = Server(pool=Pool((*POOL, dear)))
    token = await server.token(Rules(per_day=Allowance(usd=1.0)))
    first, second = await server.access.authenticate(token), await server.access.authenticate(token)
    first = await server.access.reserve(first, model="podium", tokens=600)
    second = await server.access.reserve(second, model="podium", tokens=100)
    assert first.quota.narrow(Budget()).usd == pytest.approx(0.9)
    assert second.quota.narrow(Budget()).usd == pytest.approx(0.4)
    await server.access.close()


@pytest.mark.parametrize(
    ("scopes", "model", "allowed"),
    [
        ({"ask"}, "podium", True),
        ({"ask"}, "gpt", False),
        ({"gateway"}, "gpt", True),
        ({"gateway"}, "podium-ultra@1", False),
        ({"admin"}, "podium", True),
        ({"plan"}, "podium", False),
    ],
)
async def test_a_tier_takes_one_scope_and_a_worker_another(
    server: Server, scopes: set[str], model: str, allowed: bool
) -> None:
    principal = await server.principal(Rules(scopes=frozenset(scopes)))  # type: ignore[arg-type]
    if allowed:
        await server.access.reserve(principal, model=model, tokens=1)
        return
    with pytest.raises(ApiError) as refusal:
        await server.access.reserve(principal, model=model, tokens=1)
    assert refusal.value.status == 403


async def test_a_request_may_take_another_scope(server: Server) -> None:
    principal = await server.principal(Rules(scopes=frozenset({"plan"})))
    await server.access.reserve(principal, model="podium", tokens=1, scope="plan")


@pytest.mark.parametrize("model", ["claude", "podium-ultra", "gpt"])
async def test_requests_beyond_a_keys_rules_are_forbidden(server: Server, model: str) -> None:
    principal = await server.principal(
        Rules(
            tiers=frozenset({"mini"}),
            workers=frozenset({"claude"}),
            exclude=frozenset({"anthropic"}),
        )
    )
    with pytest.raises(ApiError) as refusal:
        await server.access.reserve(principal, model=model, tokens=1)
    assert (refusal.value.status, refusal.value.field) == (403, "model")


async def begin(server: Server, visitor_token: str, tokens: int = 0) -> Reason | None:
    """A request with that key, and why it was refused, if it was."""
    principal = await server.access.authenticate(visitor_token)
    try:
        await server.access.reserve(principal, model="podium", tokens=tokens)
    except ApiError as refusal:
        return refusal.reason
    return None


async def test_too_many_requests_get_a_retry_after(server: Server) -> None:
    token = await server.token(Rules(requests_per_minute=2))
    assert [await begin(server, token) for _ in range(3)] == [None, None, "rate_limited"]
    principal = await server.access.authenticate(token)
    with pytest.raises(ApiError, match="try again in 30 s") as refusal:
        await server.access.reserve(principal, model="podium", tokens=0)
    assert refusal.value.status == 429
    assert refusal.value.retry_after == pytest.approx(30.0)
    server.clock.now += 30
    assert await begin(server, token) is None


async def test_too_many_tokens_are_too_fast_as_well(server: Server) -> None:
    token = await server.token(Rules(tokens_per_minute=1000))
    principal = await server.access.authenticate(token)
    principal = await server.access.reserve(principal, model="podium", tokens=600)
    assert await begin(server, token, 600) == "rate_limited"
    await server.settle(principal, tokens=100, usd=0.0)
    assert await begin(server, token, 600) is None


async def test_a_request_that_is_refused_takes_nothing(server: Server) -> None:
    token = await server.token(Rules(requests_per_minute=2, tokens_per_minute=100))
    assert await begin(server, token, 100) is None
    for _ in range(10):
        assert await begin(server, token, 100) == "rate_limited"
    assert await begin(server, token, 0) is None


@pytest.mark.parametrize(
    ("rules", "renewed"),
    [
        (Rules(per_day=Allowance(usd=1.0)), DAY),
        (Rules(per_day=Allowance(tokens=100)), DAY),
        (Rules(per_month=Allowance(usd=1.0)), 31 * DAY),
        (Rules(in_total=Allowance(tokens=100)), None),
    ],
)
async def test_a_spent_budget_is_distinguished_from_a_rate_limit_and_resets(
    server: Server, rules: Rules, renewed: float | None
) -> None:
    token = await server.token(rules)
    principal = await server.access.authenticate(token)
    principal = await server.access.reserve(principal, model="podium", tokens=10)
    await server.settle(principal, tokens=100, usd=1.0)
    again = await server.access.authenticate(token)
    with pytest.raises(
        ApiError, match="budget of key 'Ada' is spent: .* used of .*, (resets|does not reset)"
    ) as refusal:
        await server.access.reserve(again, model="podium", tokens=10)
    assert (refusal.value.reason, refusal.value.status) == ("out_of_budget", 402)
    server.clock.now += renewed or 400 * DAY
    assert await begin(server, token) == (None if renewed else "out_of_budget")


async def test_spending_survives_a_restart(server: Server) -> None:
    token = await server.token(Rules(in_total=Allowance(usd=1.0)))
    principal = await server.access.authenticate(token)
    await server.settle(principal, tokens=1, usd=1.0)
    await server.access.close()
    server.access = KeyAuthenticator(server.keys, POOL, clock=server.clock)
    assert await begin(server, token) == "out_of_budget"


async def test_spending_of_another_process_counts_within_seconds(server: Server) -> None:
    token = await server.token(Rules(in_total=Allowance(usd=1.0)))
    assert await begin(server, token) is None
    other = KeyAuthenticator(server.keys, POOL, clock=server.clock)
    principal = await other.authenticate(token)
    principal = await other.reserve(principal, model="podium", tokens=0)
    await other.settle(principal, model="podium", cost=RequestCost(Usage(1, 1), Usage(0, 0), 1.0))
    await other.close()
    assert await begin(server, token) is None
    server.clock.now += KEY_CACHE_SECONDS
    assert await begin(server, token) == "out_of_budget"


async def test_requests_in_flight_hold_what_they_will_probably_use(server: Server) -> None:
    token = await server.token(Rules(per_day=Allowance(usd=1.0)))
    first = await server.access.authenticate(token)
    first = await server.access.reserve(first, model="podium", tokens=100)
    await server.settle(first, tokens=100, usd=0.25)
    flying = [await server.access.authenticate(token) for _ in range(3)]
    flying = [await server.access.reserve(item, model="podium", tokens=100) for item in flying]
    principal = await server.access.authenticate(token)
    with pytest.raises(
        ApiError, match="requests in flight reserve the rest of the daily budget of key 'Ada'"
    ) as refusal:
        await server.access.reserve(principal, model="podium", tokens=100)
    assert (refusal.value.status, refusal.value.retry_after) == (429, 1.0)
    await server.settle(flying[0], tokens=10, usd=0.01)
    assert await begin(server, token, 100) is None


async def test_each_request_gets_back_its_own_hold(server: Server) -> None:
    token = await server.token(Rules(per_day=Allowance(tokens=1000)))
    small, large = await server.access.authenticate(token), await server.access.authenticate(token)
    small = await server.access.reserve(small, model="podium", tokens=100)
    large = await server.access.reserve(large, model="podium", tokens=800)
    await server.settle(large, tokens=0)
    large = await server.access.reserve(large, model="podium", tokens=0)
    assert large.quota.narrow(Budget()) == Budget(tokens=900)


async def test_a_run_gets_the_least_of_its_request_its_cap_and_what_is_left(server: Server) -> None:
    token = await server.token(
        Rules(per_request=Allowance(usd=0.5), per_day=Allowance(usd=0.75, tokens=1000))
    )
    principal = await server.access.authenticate(token)
    principal = await server.access.reserve(principal, model="podium", tokens=200)
    assert principal.quota.narrow(Budget(calls=9)) == Budget(calls=9, usd=0.5, tokens=1000)
    assert principal.quota.narrow(Budget(usd=0.1, tokens=50)) == Budget(usd=0.1, tokens=50)
    await server.settle(principal, tokens=600, usd=0.5)
    assert principal.quota.narrow(Budget()) == Budget(usd=0.25, tokens=400)


async def test_the_unknown_is_charged_as_it_was_estimated(server: Server) -> None:
    token = await server.token(Rules(per_day=Allowance(tokens=1000)))
    principal = await server.access.authenticate(token)
    principal = await server.access.reserve(principal, model="podium", tokens=700)
    await server.access.settle(
        principal, model="podium", cost=RequestCost(UNKNOWN_USAGE, UNKNOWN_USAGE, None)
    )
    assert principal.quota.narrow(Budget()) == Budget(tokens=300)
    await server.access.close()
    (row,) = server.keys.used
    assert (row.unknown_usage_count, row.unknown_cost_count, row.assumed_tokens) == (1, 1, 700)


async def test_usage_is_written_by_the_day_on_which_it_was_settled(server: Server) -> None:
    principal = await server.principal()
    await server.settle(principal, tokens=1)
    server.clock.now = NOON + DAY
    await server.settle(principal, tokens=2)
    await server.access.close()
    assert [(row.day, row.input_tokens) for row in server.keys.used] == [
        ("2026-01-02", 1),
        ("2026-01-03", 2),
    ]


async def test_an_open_server_lets_everyone_in_for_everything() -> None:
    access = AccessPolicy()
    for token in (None, "", "sk-whatever"):
        principal = await access.authenticate(token)
        assert all(principal.has_scope(scope) for scope in SCOPES)
        assert principal.key_id == ""
        principal = await access.reserve(principal, model="podium", tokens=10**9)
        assert principal.quota.narrow(Budget(usd=9.0)) == Budget(usd=9.0)
        await access.settle(
            principal, model="podium", cost=RequestCost(UNKNOWN_USAGE, UNKNOWN_USAGE, None)
        )
    await access.close()
