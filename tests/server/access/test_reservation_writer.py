"""Caps that several replicas hold together, over a real database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from podium.core.errors import BudgetExhausted, BudgetUnavailable, StoreError
from podium.core.request import Usage
from podium.core.run import Run
from podium.server.access import quotas
from podium.server.access.quotas import Reservation, ReservationWriter
from podium.server.api_error import ApiError
from podium.store.keys import Allowance, Amount, ReservationResult, ReservationRow, Rules
from podium.store.sql.quotas import ReservationStore
from server.access.replicas import CRUMB, Replica, hold_of, replicas_of

A_DOLLAR = Rules(in_total=Allowance(usd=1.0))


pytestmark = pytest.mark.usefixtures("hurry")


async def test_a_reservation_of_one_replica_is_seen_by_all(where: str) -> None:
    async with replicas_of(where, A_DOLLAR, 2) as replicas:
        one, other = replicas.all
        first, second = await one.begin(replicas.made), await other.begin(replicas.made)
        _, hold = await hold_of(first, 700)
        assert hold.max_tokens == 700
        ledger, cut = await hold_of(second, 700)
        assert hold.usd + cut.usd <= 1.0 + CRUMB
        assert cut.max_tokens is not None
        assert 200 < cut.max_tokens < 300
        ledger.settle(cut, Usage(1, 1, 0, 0, 0), 0.0)


async def test_a_call_waits_for_a_reservation_that_another_replica_releases(where: str) -> None:
    async with replicas_of(where, A_DOLLAR, 2) as replicas:
        one, other = replicas.all
        first, second = await one.begin(replicas.made), await other.begin(replicas.made)
        ledger, hold = await hold_of(first, 5000)
        waiting = asyncio.create_task(hold_of(second, 500))
        await asyncio.sleep(0.03)
        assert not waiting.done()
        ledger.settle(hold, Usage(1, 1, 0, 0, 0), 0.001)
        _, got = await asyncio.wait_for(waiting, 5)
        assert got.max_tokens == 500


async def test_a_call_that_waits_for_another_replica_leaves_no_reservation(
    where: str,
) -> None:
    async with replicas_of(where, A_DOLLAR, 2) as replicas:
        one, other = replicas.all
        first, second = await one.begin(replicas.made), await other.begin(replicas.made)
        await hold_of(first, 5000)
        shared_budget = second.quota.shared_budget
        assert isinstance(shared_budget, Reservation)
        for _ in range(3):
            await shared_budget.wait_for_change()
        assert not shared_budget._budget._waiting
        waiting = asyncio.create_task(shared_budget.wait_for_change())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        assert not shared_budget._budget._waiting


async def test_a_budget_that_is_spent_elsewhere_is_spent_here_at_once(where: str) -> None:
    async with replicas_of(where, A_DOLLAR, 2) as replicas:
        one, other = replicas.all
        late = await other.begin(replicas.made)
        spender = await one.begin(replicas.made)
        await one.settle(spender, usd=0.999)
        await one.access.close()
        with pytest.raises(BudgetExhausted, match=r"total budget of key 'Ada' is too small"):
            await hold_of(late, 500)
        await other.settle(late, usd=0.001)
        await other.access.close()
        with pytest.raises(
            ApiError, match=r"total budget of key 'Ada' is spent: \$1 used of \$1, does not reset"
        ):
            await other.begin(replicas.made)


async def test_a_settled_request_leaves_no_reservation(where: str) -> None:
    async with replicas_of(where, A_DOLLAR, 2) as replicas:
        for replica in replicas.all:
            principal = await replica.begin(replicas.made)
            ledger, hold = await hold_of(principal, 50)
            ledger.settle(hold, Usage(1, 1, 0, 0, 0), 0.01)
            await replica.settle(principal, usd=0.01, tokens=2)
        for replica in replicas.all:
            await replica.access.close()
        assert await replicas.rows() == []
        assert await replicas.charged() == Amount(0.02, 4)


async def test_killed_replica_returns_its_reservation_and_is_charged_for_use(
    where: str,
) -> None:
    async with replicas_of(where, A_DOLLAR, 2) as replicas:
        killed, living = replicas.all
        principal = await killed.begin(replicas.made)
        ledger, hold = await hold_of(principal, 100)
        ledger.settle(hold, Usage(50, 50, 0, 0, 0), 0.05)
        await hold_of(principal, 5000)
        await replicas.see(0.05)
        replicas.kill(killed)
        other = await living.begin(replicas.made)
        with pytest.raises(asyncio.TimeoutError):  # the dead one's call may still come back
            await asyncio.wait_for(hold_of(other, 500), 0.1)
        await replicas.let_leases_run_out()
        _, hold = await asyncio.wait_for(hold_of(other, 5000), 5)
        assert hold.usd == pytest.approx(0.95, abs=0.01)
        assert living.access._reservations is not None
        assert await living.access._reservations.settle_expired() == 1
        assert await living.access._reservations.settle_expired() == 0
        assert await replicas.charged() == Amount(0.05, 100)


async def test_a_run_of_a_killed_replica_counts_until_its_new_owner_ended_it(
    where: str, make_run: Callable[..., Run]
) -> None:
    async with replicas_of(where, A_DOLLAR, 2) as replicas:
        killed, living = replicas.all
        key_id = replicas.made.key.id
        run = replace(make_run(steps=2, status="running", answer=None), owner=key_id)
        principal = await killed.begin(replicas.made, model="podium-ultra")
        principal.quota.attach_run(run)
        await killed.store.begin(run)
        ledger, hold = await hold_of(principal, 600)
        ledger.settle(hold, Usage(20, 10, 0, 0, 0), 0.5)
        await replicas.see(0.5)
        replicas.kill(killed)
        await replicas.let_leases_run_out()
        assert (
            living.access._reservations is None
            or await living.access._reservations.settle_expired() == 0
        )
        other = await living.begin(replicas.made)
        _, left = await hold_of(other, 5000)
        assert left.usd == pytest.approx(0.5, abs=0.01)
        await living.settle(other)
        async with living.access.shared_budget_for_run(run) as shared_budget:
            assert shared_budget is not None
            assert shared_budget.left.usd == pytest.approx(0.5, abs=0.01)
            assert [row["used_usd"] for row in await replicas.rows() if row["run_id"]] == [0.5]
            claimed = await living.store.claim(run.id, "another:1")
            done = replace(make_run(steps=3), owner=key_id)
            assert claimed.id == done.id
            await living.store.finish(done)
        await living.access.close()
        assert await replicas.rows() == []
        assert await replicas.charged() == Amount(0.75, 45)


async def test_resuming_an_interrupted_run_keeps_its_earlier_usage(
    where: str, make_run: Callable[..., Run]
) -> None:
    async with replicas_of(where, A_DOLLAR, 2) as replicas:
        killed, living = replicas.all
        run = make_run(steps=2, status="running", answer=None)
        for replica in (killed, living):
            principal = await replica.begin(replicas.made, model="podium-ultra")
            principal.quota.attach_run(run)
            ledger, hold = await hold_of(principal, 500)
            ledger.settle(hold, Usage(1, 1, 0, 0, 0), hold.usd)
            await replicas.see(hold.usd)
            if replica is killed:
                replicas.kill(killed)
                await replicas.let_leases_run_out()
        with pytest.raises(BudgetExhausted):
            await hold_of(principal, 500)


async def test_a_run_with_a_revoked_key_is_not_resumed(
    where: str, make_run: Callable[..., Run]
) -> None:
    async with replicas_of(where, A_DOLLAR, 1) as replicas:
        (replica,) = replicas.all
        run = replace(make_run(), owner=replicas.made.key.id)
        await replica.store.keys.revoke(replicas.made.key.id)
        with pytest.raises(ApiError, match="API key 'Ada' was revoked"):
            async with replica.access.shared_budget_for_run(run):
                raise AssertionError("nobody gets here")
        async with replica.access.shared_budget_for_run(replace(run, owner="")) as shared_budget:
            assert shared_budget is None


async def test_a_key_with_a_cap_is_refused_while_the_store_cannot_be_asked(where: str) -> None:
    async with replicas_of(where, A_DOLLAR, 2) as replicas:
        one, cut_off = replicas.all
        first = await cut_off.begin(replicas.made)
        second = await cut_off.access.authenticate(replicas.made.token)
        cut_off.store.database.is_closed = True
        with pytest.raises(ApiError, match="cannot be looked up") as caught:
            await cut_off.access.reserve(second, model="worker", tokens=1)
        assert (caught.value.status, caught.value.retry_after) == (503, 1.0)
        with pytest.raises(BudgetUnavailable, match="cannot look up what this key has left"):
            await hold_of(first, 500)
        shared_budget = first.quota.shared_budget
        assert shared_budget is not None
        assert not shared_budget.has_calls_in_flight, "what could not be secured is not held"
        principal = await one.begin(replicas.made)
        assert (await hold_of(principal, 500))[1].max_tokens == 500


async def test_a_key_without_a_cap_never_asks_the_store(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReservationWriter, "_update_store", None)
    async with replicas_of(where, Rules(per_request=Allowance(usd=1.0)), 1) as replicas:
        (replica,) = replicas.all
        principal = await replica.begin(replicas.made)
        assert principal.quota.shared_budget is not None
        assert not principal.quota.shared_budget.is_shared
        await replica.settle(principal, usd=0.5)


async def test_a_call_within_what_its_reservation_was_granted_does_not_ask_again(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replicas_of(where, A_DOLLAR, 1) as replicas:
        (replica,) = replicas.all
        monkeypatch.setattr(quotas, "WRITE_SECONDS", 60.0)
        principal = await replica.begin(replicas.made)
        ledger, hold = await hold_of(principal, 500)
        ledger.settle(hold, Usage(1, 1, 0, 0, 0), 0.0)
        monkeypatch.setattr(ReservationWriter, "_update_store", None)
        assert (await hold_of(principal, 490))[1].max_tokens == 490


async def test_a_request_that_is_given_up_while_it_begins_leaves_no_reservation(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replicas_of(where, A_DOLLAR, 1) as replicas:
        (replica,) = replicas.all
        principal = await replica.access.authenticate(replicas.made.token)
        opened, released = asyncio.Event(), asyncio.Event()
        updating = ReservationWriter._update_store

        async def slowly(self: ReservationWriter, *args: object) -> object:
            result = await updating(self, *args)  # type: ignore[arg-type]
            opened.set()
            await released.wait()
            return result

        monkeypatch.setattr(ReservationWriter, "_update_store", slowly)
        begin = replica.access.reserve(principal, model="worker", tokens=1)
        task = asyncio.create_task(begin)
        await opened.wait()
        assert len(await replicas.rows()) == 1
        task.cancel()
        await asyncio.wait({task})
        released.set()
        await replica.access.close()
        assert await replicas.rows() == []


async def test_a_reservation_that_is_closed_while_it_is_written_is_closed_after_that(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replicas_of(where, A_DOLLAR, 1) as replicas:
        (replica,) = replicas.all
        principal = await replica.begin(replicas.made)
        reservations = replica.access._reservations
        assert reservations is not None
        updating, asked, released = reservations.update, asyncio.Event(), asyncio.Event()

        async def late(*args: Any, **asking: Any) -> ReservationResult:
            asked.set()
            await released.wait()
            return await updating(*args, **asking)

        monkeypatch.setattr(reservations, "update", late)
        task = asyncio.create_task(hold_of(principal, 500))
        await asked.wait()
        task.cancel()
        await asyncio.wait({task})
        await replica.settle(principal)
        while await replicas.rows():
            await asyncio.sleep(0.001)
        released.set()
        await replica.access.close()
        assert await replicas.rows() == []


class Unsteady:
    """The reservations of a replica, whose next update waits until released, and then fails."""

    def __init__(self, replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
        assert replica.access._reservations is not None
        self._update = replica.access._reservations.update
        self.asked, self.released = asyncio.Event(), asyncio.Event()
        self.asked_for = 0
        monkeypatch.setattr(quotas, "RETRY_SECONDS", 0.001)
        monkeypatch.setattr(replica.access._reservations, "update", self.update)

    async def update(self, *args: Any, **asking: Any) -> ReservationResult:
        self.asked_for += 1
        if self.asked_for > 1:
            return await self._update(*args, **asking)
        self.asked.set()
        await self.released.wait()
        raise StoreError("the store is away")


async def test_a_reservation_that_is_closed_while_it_cannot_be_written_is_not_written_again(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replicas_of(where, A_DOLLAR, 1) as replicas:
        (replica,) = replicas.all
        principal = await replica.begin(replicas.made)
        ledger, hold = await hold_of(principal, 500)
        reservations = Unsteady(replica, monkeypatch)
        ledger.settle(hold, Usage(1, 1, 0, 0, 0), 0.1)
        await reservations.asked.wait()
        await replica.settle(principal, usd=0.1)
        while await replicas.rows():
            await asyncio.sleep(0.001)
        reservations.released.set()
        await asyncio.sleep(0.03)
        await replica.access.close()
        assert await replicas.rows() == []
        assert reservations.asked_for == 1, "nothing is left to be written"


async def test_changes_during_a_budgets_recovery_are_written_too(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replicas_of(where, A_DOLLAR, 1) as replicas:
        (replica,) = replicas.all
        first, second = await replica.begin(replicas.made), await replica.begin(replicas.made)
        ledger, hold = await hold_of(first, 100)
        reservations = Unsteady(replica, monkeypatch)
        refused = asyncio.create_task(hold_of(second, 100))
        await reservations.asked.wait()
        later = asyncio.create_task(hold_of(first, 100))
        updating, recovering, recovered = reservations._update, asyncio.Event(), asyncio.Event()

        async def slowly(*args: Any, **asking: Any) -> ReservationResult:
            recovering.set()
            await recovered.wait()
            return await updating(*args, **asking)

        reservations._update = slowly
        await asyncio.sleep(0)
        reservations.released.set()
        await recovering.wait()
        ledger.settle(hold, Usage(1, 1, 0, 0, 0), 0.05)
        await asyncio.sleep(0.02)  # its time to be written passes meanwhile
        recovered.set()
        with pytest.raises(BudgetUnavailable):
            await refused
        await later
        await replicas.see(0.05)


async def test_a_shared_budget_that_was_closed_tries_nothing_again(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replicas_of(where, A_DOLLAR, 1) as replicas:
        (replica,) = replicas.all
        principal = await replica.begin(replicas.made)
        ledger, hold = await hold_of(principal, 500)
        reservations = Unsteady(replica, monkeypatch)
        ledger.settle(hold, Usage(1, 1, 0, 0, 0), 0.1)
        await reservations.asked.wait()
        closing = asyncio.create_task(replica.access.close())
        await asyncio.sleep(0.01)
        reservations.released.set()
        await closing
        await asyncio.sleep(0.02)
        assert reservations.asked_for == 1


async def test_writes_of_a_killed_replica_are_lost(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Avoid waiting for its lease and its orphaned calls."""
    async with replicas_of(where, A_DOLLAR, 2) as replicas:
        killed, living = replicas.all
        principal = await killed.begin(replicas.made)
        seen, released = asyncio.Event(), asyncio.Event()
        looking = ReservationStore._read_state

        async def slowly(self: ReservationStore, *args: Any) -> Any:
            seen.set()
            await released.wait()
            return await looking(self, *args)

        monkeypatch.setattr(ReservationStore, "_read_state", slowly)
        holding = asyncio.create_task(hold_of(principal, 900))
        await seen.wait()
        replicas.kill(killed)
        released.set()
        with pytest.raises(BudgetUnavailable):
            await holding
        await replicas.let_leases_run_out()
        other = await living.begin(replicas.made)
        _, hold = await asyncio.wait_for(hold_of(other, 5000), 5)
        assert hold.usd == pytest.approx(1.0, abs=0.01)


async def test_a_reservation_that_was_granted_nothing_takes_nothing(where: str) -> None:
    async with replicas_of(where, A_DOLLAR, 1) as replicas:
        (replica,) = replicas.all
        reservations, key = replica.store.keys.quotas.reservations("one", 60.0), replicas.made.key
        wide = ReservationRow(id="wide", key_id=key.id, model="m", needed=Amount(0.9, 0))
        result = await reservations.update(key.id, key.rules, "2026-01-02", increased=[wide])
        assert result.granted == {"wide": Amount(0.9, 0)}
        more = replace(wide, needed=Amount(1.5, 0), granted=Amount(0.9, 0))
        small = ReservationRow(id="small", key_id=key.id, model="m", needed=Amount(0.2, 0))
        result = await reservations.update(key.id, key.rules, "2026-01-02", increased=[more, small])
        assert result.granted == {}, "what the refused one had before is still taken"
