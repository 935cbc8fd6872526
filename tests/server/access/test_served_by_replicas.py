"""Two servers over one database, and one key with a cap: what their clients spend together."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from podium.conductors import FixedConductor
from podium.core.errors import RequestRefused
from podium.core.pool import Pool
from podium.core.request import Delta, Price, Reply, Request, ToolCall, Usage
from podium.core.run import Run
from podium.core.workflow import Step, Workflow
from podium.server.access import KeyAuthenticator
from podium.server.access.keys import make_key
from podium.server.startup import DIALECTS
from podium.store.keys import Allowance, Amount, Rules
from podium.store.sql.run_store import SqlRunStore
from podium.store.sql.tables import RESERVATIONS
from podium.workers import ScriptedWorker
from support.serving import Served, application, serving

A_DOLLAR = Rules(per_day=Allowance(usd=1.0))
GONE = f"{socket.gethostname()}:99999999"
CHAT = "/v1/chat/completions"


class Chatterbox(ScriptedWorker):
    """Says a hundred tokens if it may, and then uses a tool of the client's if there is one: a
    thousand tokens are a dollar."""

    def __init__(self) -> None:
        super().__init__("solo", "yes", price=Price(input=0.0, output=1000.0))
        self.profile = replace(self.profile, capabilities=frozenset({"tools"}))
        self.said = 0

    async def reply(self, request: Request) -> Reply:
        await asyncio.sleep(0.002)
        if request.max_tokens is None:
            raise RequestRefused("a cap on money caps what may be said")
        tokens = min(request.max_tokens, 100)
        self.said += tokens
        if request.tools and not any(turn.role == "tool" for turn in request.messages):
            call = ToolCall("call_1", "look", "{}")
            return Reply("", Usage(0, tokens, 0, 0, 0), tool_calls=(call,), finish="tool")
        return Reply("yes", Usage(0, tokens, 0, 0, 0))

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        yield await self.reply(request)


@dataclass
class Several:
    """Two servers that share everything but their memory."""

    served: list[Served]
    stores: list[SqlRunStore]
    doors: list[KeyAuthenticator]
    worker: Chatterbox
    key_id: str

    async def ask(self, number: int, model: str, **body: object) -> httpx.Response:
        messages = [{"role": "user", "content": "Why?"}]
        return await self.served[number % 2].client.post(
            CHAT, json={"model": model, "messages": messages, **body}
        )

    async def settled(self) -> Amount:
        """What the key was charged, when everything is written."""
        for access in self.doors:
            await access.close()
        rows = await self.stores[0].keys.usage(key_id=self.key_id)
        return Amount(
            sum(row.cost_usd + row.assumed_usd for row in rows),
            sum(row.output_tokens + row.assumed_tokens for row in rows),
        )

    async def open_tabs(self) -> int:
        async with self.stores[0]._transaction() as connection:
            return len((await connection.execute(select(RESERVATIONS))).all())


TWICE = FixedConductor(Workflow((Step("solo", "First"), Step("solo", "Second", (0,)))))


@asynccontextmanager
async def several(where: str, rules: Rules) -> AsyncIterator[Several]:
    made, worker = make_key("Ada", rules), Chatterbox()
    both = Several([], [], [], worker, made.key.id)
    async with AsyncExitStack() as stack:
        for _ in range(2):
            store = await SqlRunStore.open(where)
            access = KeyAuthenticator(store.keys, Pool((worker.profile,)), shared=True)
            if not both.stores:
                await store.keys.add(made.key)
            app = application(
                [worker],
                conductor=TWICE,
                store=store,
                access=access,
                dialects=DIALECTS,
                shared=True,
            )
            served = await stack.enter_async_context(serving(app))
            served.client.headers["Authorization"] = f"Bearer {made.token}"
            both.served.append(served)
            both.stores.append(store)
            both.doors.append(access)
        yield both


@pytest.mark.parametrize("model", ["solo", "podium-ultra"])
async def test_a_cap_holds_for_all_that_run_at_once_on_two_servers(where: str, model: str) -> None:
    async with several(where, A_DOLLAR) as both:
        asked = [both.ask(number, model, max_tokens=300) for number in range(16)]
        answers = await asyncio.gather(*asked)
        charged = await both.settled()
        assert charged.tokens == both.worker.said
        assert charged.usd == pytest.approx(both.worker.said / 1000)
        assert charged.usd <= 1.0 + 1e-9
        assert await both.open_tabs() == 0
    assert {answer.status_code for answer in answers} <= {200, 402, 429}
    assert charged.usd > 0.6


@pytest.mark.parametrize("store", [True, False])
async def test_a_run_that_waits_on_one_server_and_continues_at_another_is_charged_once(
    where: str, store: bool
) -> None:
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    async with several(where, A_DOLLAR) as both:
        turns: list[Any] = [{"role": "user", "content": "Why?"}]
        for number in range(2):
            asked = {"tools": tools, "store": store, "messages": turns}
            answer = await both.ask(number, "podium-ultra", **asked)
            message = answer.json()["choices"][0]["message"]
            turns.append(message)
            turns += (
                {"role": "tool", "tool_call_id": call["id"], "content": "found"}
                for call in message.get("tool_calls", ())
            )
        assert message["content"] == "yes"
        charged = await both.settled()
        assert (charged.tokens, both.worker.said) == (300, 300)
        assert charged.usd == pytest.approx(0.3)
        rows = await both.stores[0].keys.usage(key_id=both.key_id)
        assert sum(row.requests for row in rows) == 2
        assert await both.open_tabs() == 0


async def test_a_run_that_was_cut_off_is_charged_with_what_was_journalled_before(
    where: str, make_run: Callable[..., Run]
) -> None:
    async with several(where, A_DOLLAR) as both:
        cut_off = replace(
            make_run(steps=2, status="running", answer=None),
            owner=both.key_id,
            pool=Pool((both.worker.profile,)),
            process=GONE,
        )
        (round_,) = cut_off.rounds
        workflow = Workflow(tuple(Step("solo", f"Do part {n}") for n in range(3)))
        cut_off = replace(cut_off, rounds=(replace(round_, workflow=workflow),))
        await both.stores[0].begin(cut_off)
        before = await both.settled()
        service = both.served[1].service
        async with service.access.shared_budget_for_run(cut_off) as shared_budget:
            done = await service.podium.resume(cut_off.id, shared_budget=shared_budget)
        assert done.status == "answered"
        after = await both.settled()
    assert before == Amount()
    assert after.usd == pytest.approx(0.5 + both.worker.said / 1000)
    assert both.worker.said == 100
