"""Chat: ask, watch, compare, edit the plan; and what is shown where that fails."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
import pytest_asyncio

from podium.conductors import FixedConductor, Plan, PlanningContext
from podium.core.conductor import Conductor
from podium.core.request import Image
from podium.core.run import Run, new_run_id, timestamp
from podium.core.worker import Caller
from podium.core.workflow import Step, Workflow
from podium.engine.runner import Options
from podium.server.access.keys import make_key
from podium.store import RunFilter
from podium.store.keys import Rules
from support.browsing import SHIFTS, sign_in
from support.paced import Paced
from support.site import Site, site_over
from support.wire import wire_to

playwright = pytest.importorskip("playwright.async_api")
expect = playwright.expect

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page, Route

    from server.pages.conftest import Clock, Serve, Watched

QUESTION = "Is 91 a prime?"
ANSWER = "No: **91** is 7 times 13."
JOIN = Workflow(
    (
        Step("ada", "Look for factors"),
        Step("bob", "Recall the primes"),
        Step("cleo", "Compare both and answer", (0, 1)),
    )
)


@dataclass
class ChatServer:
    """A site and those who act on it; `cleo` is the most expensive of them."""

    site: Site
    ada: Paced
    bob: Paced
    cleo: Paced

    def hold(self) -> None:
        """Workers reply only when released."""
        for worker in (self.ada, self.bob, self.cleo):
            worker.hold()

    def begin_anew(self) -> None:
        """Everybody as in the beginning; what was asked before is still on record."""
        for worker, fresh in zip((self.ada, self.bob, self.cleo), actors(), strict=True):
            worker.begin_anew(fresh.line)


def actors(bobs_price: float | None = 2.0) -> tuple[Paced, Paced, Paced]:
    return (
        Paced("ada", "7 divides it.", price=1.0),
        Paced("bob", "91 is not in the list.", bobs_price),
        Paced("cleo", ANSWER, price=5.0),
    )


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def opened_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ChatServer]:
    workers = actors()
    directory = tmp_path_factory.mktemp("chat_server")
    async with site_over(directory, workers, conductor=FixedConductor(JOIN)) as site:
        yield ChatServer(site, *workers)


@pytest.fixture
def chat_server(opened_server: ChatServer, watched: Watched) -> ChatServer:
    """One server for all tests of the module."""
    opened_server.begin_anew()
    watched.origins.add(f"{opened_server.site.address}/")
    return opened_server


async def opened(page: Page, address: str, question: str = QUESTION) -> None:
    """The chat, with a question written and the tier chosen that plans."""
    await page.goto(address)
    await page.get_by_label("Model").select_option("podium-ultra")
    await page.get_by_label("Message").fill(question)


async def asked(page: Page, address: str) -> Locator:
    """A question that was asked: the card of its first version."""
    await opened(page, address)
    await page.get_by_role("button", name="Send", exact=True).click()
    return version(page, "podium-ultra")


async def options(page: Page) -> None:
    """Show the system prompt and the budgets."""
    await page.get_by_role("button", name="Options").click()


async def unfolded(card: Locator) -> Locator:
    """The card, with its workflow open."""
    await card.locator(".version-fold > summary").click()
    return card


def version(page: Page, title: str) -> Locator:
    return page.get_by_role("article", name=title, exact=True)


def step(card: Locator, index: int, state: str = "") -> Locator:
    """A step in the drawing, in that state."""
    in_state = f'[data-state="{state}"]' if state else ""
    return card.locator(f'.graph-step[data-step="{index}"]{in_state}')


async def answered(card: Locator) -> None:
    await card.locator('[data-status="answered"]').wait_for()


async def figures(card: Locator) -> dict[str, str]:
    """The figures in the line below an answer, or those of an estimate, by their names."""
    if lines := await card.locator(".facts > div").all_inner_texts():
        return {name: value for [name, value] in (line.split("\n") for line in lines)}
    found = card.locator(".took > span")
    values = [text.split(" tok")[0] for text in await found.all_inner_texts()]
    names = [await item.get_attribute("data-figure") or "" for item in await found.all()]
    return dict(zip(names, values, strict=True))


async def test_a_workflow_is_watched_as_it_runs(page: Page, chat_server: ChatServer) -> None:
    chat_server.hold()
    card = await unfolded(await asked(page, chat_server.site.address))
    await step(card, 0, "running").wait_for()
    await step(card, 1, "running").wait_for()
    await step(card, 2, "waiting").wait_for()
    assert await card.locator(".graph-lane title").all_text_contents() == ["ada", "bob", "cleo"]
    chat_server.ada.go_on()
    await step(card, 0, "done").wait_for()
    await step(card, 1, "running").wait_for()
    await card.locator(".version-step").nth(0).get_by_text("7 divides it.").wait_for()
    chat_server.bob.go_on()
    await step(card, 2, "running").wait_for()
    chat_server.cleo.say(2)
    await card.locator(".answer").get_by_text("No: 91", exact=True).wait_for()
    chat_server.cleo.go_on()
    await answered(card)
    assert await card.locator(".answer").inner_text() == "No: 91 is 7 times 13."
    assert await card.locator(".answer strong").inner_text() == "91"


async def test_the_end_reports_cost_time_tokens_and_the_way_to_the_run(
    page: Page, chat_server: ChatServer
) -> None:
    await opened(page, chat_server.site.address)
    await page.get_by_label("Model").select_option("podium-mini")
    await page.keyboard.press("Control+Enter")
    card = version(page, "podium-mini")
    await answered(card)
    results = await figures(card)
    assert re.fullmatch(r"\d+ ms|[\d.]+ s", results.pop("Time"))
    assert results == {
        "Cost": "$0.00012",
        "Tokens in": "100",
        "Tokens out": "10 out",
        "Calls": "1 call",
    }
    run = await newest(chat_server.site)
    link = card.get_by_role("link", name="Open the run")
    assert await link.get_attribute("href") == f"/runs/{run.id}"


async def test_a_cost_that_is_unknown_is_a_dash_and_not_nothing(page: Page, serve: Serve) -> None:
    workers = actors(bobs_price=None)
    async with serve(workers, conductor=FixedConductor(JOIN)) as site:
        card = await asked(page, site.address)
        await answered(card)
        results = await figures(card)
    assert (results["Cost"], results["Calls"]) == ("–", "3 calls")


async def test_a_plan_is_shown_with_an_estimate_and_runs_on_click(
    page: Page, chat_server: ChatServer
) -> None:
    await opened(page, chat_server.site.address)
    await page.get_by_role("button", name="Plan", exact=True).click()
    card = version(page, "The plan of podium-ultra")
    await step(card, 2, "planned").wait_for()
    assert (await figures(card))["Calls"] == "3"
    assert not chat_server.ada.asked
    await card.get_by_role("button", name="Run this plan").click()
    await answered(card)
    assert len(chat_server.ada.asked) == 1


async def test_a_plan_that_is_refused_can_be_asked_for_again(
    page: Page, chat_server: ChatServer, watched: Watched
) -> None:
    watched.allow("502 (Bad Gateway)")
    await refuse(page, 502, "the planner is down", where="**/v1/plan")
    await opened(page, chat_server.site.address)
    await page.get_by_role("button", name="Plan", exact=True).click()
    card = version(page, "The plan of podium-ultra")
    await card.get_by_text("the planner is down").wait_for()
    await page.unroute("**/v1/plan")
    await card.get_by_role("button", name="Plan again").click()
    await step(card, 2, "planned").wait_for()


async def test_budgets_go_with_the_question(page: Page, chat_server: ChatServer) -> None:
    await opened(page, chat_server.site.address)
    await options(page)
    await page.get_by_label("Budget, USD").fill("0.25")
    await page.get_by_label("Budget, seconds").fill("30")
    await page.get_by_role("button", name="Send", exact=True).click()
    await answered(version(page, "podium-ultra"))
    run = await newest(chat_server.site)
    assert (run.budget.usd, run.budget.seconds) == (0.25, 30)


async def test_without_a_question_nothing_is_asked(page: Page, chat_server: ChatServer) -> None:
    await opened(page, chat_server.site.address, question="  ")
    await page.get_by_role("button", name="Send", exact=True).click()
    await page.get_by_text("The message is empty; write one.").wait_for()
    assert await page.get_by_label("Message").get_attribute("aria-invalid") == "true"
    await page.get_by_label("Message").fill(QUESTION)
    await options(page)
    await page.get_by_label("Budget, USD").fill("-1")
    await page.get_by_role("button", name="Send", exact=True).click()
    await page.get_by_text("The budget in dollars is a number from 0 on").wait_for()
    assert not chat_server.ada.asked


async def test_every_round_is_shown_and_the_last_answer_stands(page: Page, serve: Serve) -> None:
    workers = actors()
    async with serve(workers, conductor=Improving(), options=Options(rounds=2)) as site:
        card = await asked(page, site.address)
        await answered(card)
        assert await card.locator(".graph").count() == 2
        await unfolded(card)
        await card.get_by_role("heading", name="Round 2").wait_for()
        assert await card.locator(".answer").inner_text() == "No: 91 is 7 times 13."


async def test_an_edited_plan_runs_beside_the_first(page: Page, chat_server: ChatServer) -> None:
    first = await asked(page, chat_server.site.address)
    await answered(first)
    await first.get_by_role("button", name="Edit the plan and run it again").click()
    second = version(page, "Your plan")
    await second.get_by_text("not changed yet").wait_for()
    rows = second.get_by_role("group", name=re.compile(r"^Step \d"))
    await rows.nth(0).get_by_label("Worker").select_option("bob")
    await rows.nth(2).get_by_label("Subtask").fill("Say it in one word")
    await rows.nth(2).get_by_label("step 1").uncheck()
    await second.get_by_text("edited, not run").wait_for()
    chat_server.cleo.line = "No."
    await second.get_by_role("button", name="Run this plan").click()
    await answered(second)
    assert await first.locator(".answer").inner_text() == "No: 91 is 7 times 13."
    assert await second.locator(".answer").inner_text() == "No."
    assert (await figures(second))["Calls"] == "3 calls"
    tops = [await card.evaluate("e => e.getBoundingClientRect().top") for card in (first, second)]
    assert tops[0] == tops[1], "they stand side by side"
    run = await newest(chat_server.site)
    assert run.rounds[0].workflow == Workflow(
        (
            Step("bob", "Look for factors"),
            Step("bob", "Recall the primes"),
            Step("cleo", "Say it in one word", (0,)),
        )
    )


async def edited(page: Page, chat_server: ChatServer) -> tuple[Locator, Locator]:
    """A plan that is being edited: its card, and the steps in it."""
    await opened(page, chat_server.site.address)
    await page.get_by_role("button", name="Plan", exact=True).click()
    await page.get_by_role("button", name="Edit the plan", exact=True).click()
    card = version(page, "Your plan")
    return card, card.get_by_role("group", name=re.compile(r"^Step \d"))


async def test_plan_errors_are_shown_beside_the_step(page: Page, chat_server: ChatServer) -> None:
    card, rows = await edited(page, chat_server)
    await card.get_by_role("button", name="Move up: step 2").click()
    await rows.nth(1).get_by_text("Step 1 may not read step 2").wait_for()
    assert await rows.nth(1).get_by_label("step 2").is_checked()
    await card.get_by_role("button", name="Move down: step 1").click()
    await card.get_by_role("button", name="Add a step").click()
    assert await rows.count() == 4
    await card.get_by_role("button", name="Run this plan").click()
    await rows.nth(2).get_by_text("Step 2 has an empty subtask; say what to do.").wait_for()
    assert await rows.nth(2).get_by_label("Subtask").evaluate("e => e === document.activeElement")
    for _ in range(4):
        await card.get_by_role("button", name="Remove: step 0").click()
    await card.get_by_text("The workflow has no steps; give it at least one.").wait_for()
    assert len(chat_server.ada.asked) == 0
    await card.get_by_role("button", name="Discard").click()
    assert await version(page, "Your plan").count() == 0


async def test_steps_that_move_keep_what_they_read(page: Page, chat_server: ChatServer) -> None:
    card, rows = await edited(page, chat_server)
    await card.get_by_role("button", name="Move down: step 0").click()
    assert await rows.nth(1).get_by_label("Subtask").input_value() == "Look for factors"
    await rows.nth(2).get_by_label("step 0").uncheck()
    await card.get_by_role("button", name="Remove: step 0").click()
    await card.get_by_role("button", name="Run this plan").click()
    await answered(card)
    run = await newest(chat_server.site)
    assert run.rounds[0].workflow == Workflow(
        (Step("ada", "Look for factors"), Step("cleo", "Compare both and answer", (0,)))
    )


async def test_a_plan_that_the_server_refuses_is_open_again_with_its_words(
    page: Page, chat_server: ChatServer, watched: Watched
) -> None:
    watched.allow("400 (Bad Request)")
    await refuse(page, 400, "steps: the worker of step 1 is 'bob'; write another")
    card, rows = await edited(page, chat_server)
    await card.get_by_role("button", name="Run this plan").click()
    await rows.nth(1).get_by_text("the worker of step 1 is 'bob'; write another").wait_for()


async def test_the_skip_link_leaves_what_is_in_progress_as_it_is(
    page: Page, chat_server: ChatServer
) -> None:
    chat_server.hold()
    card = await unfolded(await asked(page, chat_server.site.address))
    await step(card, 0, "running").wait_for()
    skip = page.get_by_role("link", name="Skip to the page")
    await skip.focus()
    await page.keyboard.press("Enter")
    await page.wait_for_url(re.compile("#page$"))
    for worker in (chat_server.ada, chat_server.bob, chat_server.cleo):
        worker.go_on()
    await answered(card)
    await page.reload()
    await answered(card)


async def test_the_best_single_worker_answers_beside_the_plan(
    page: Page, chat_server: ChatServer
) -> None:
    card = await asked(page, chat_server.site.address)
    await answered(card)
    await card.get_by_role("button", name="Run beside the best single worker").click()
    alone = version(page, "cleo alone")
    await answered(alone)
    assert await alone.locator(".answer").inner_text() == "No: 91 is 7 times 13."
    results = await figures(alone)
    assert (results["Cost"], results["Tokens in"], results["Calls"]) == ("$0.0006", "100", "1 call")
    assert "most expensive" in await alone.inner_text()
    assert chat_server.cleo.asked[-1].messages[-1].text == QUESTION
    assert not await card.get_by_role("button", name="Run beside").count()
    calls = len(chat_server.cleo.asked)
    await page.reload()
    await answered(alone)
    assert (await figures(alone))["Cost"] == "$0.0006"
    assert len(chat_server.cleo.asked) == calls, "it is not asked again"


async def test_equal_costs_name_no_most_expensive_worker(page: Page, serve: Serve) -> None:
    workers = [Paced(name, "No.", price=0.0) for name in ("ada", "bob", "cleo")]
    async with serve(workers, conductor=FixedConductor(JOIN)) as site:
        card = await asked(page, site.address)
        await card.get_by_role("button", name="Run beside the best").click()
        alone = version(page, "ada alone")
        await alone.get_by_text("is taken for the best").wait_for()
        assert "most expensive" not in await alone.inner_text()


async def test_cancelling_stops_the_run_and_reports_what_it_took(
    page: Page, chat_server: ChatServer
) -> None:
    chat_server.bob.hold()
    card = await unfolded(await asked(page, chat_server.site.address))
    await step(card, 0, "done").wait_for()
    await page.get_by_role("button", name="Stop").click()
    await card.locator('[data-status="interrupted"]').wait_for()
    await wait_until_cancelled(chat_server.bob)
    await step(card, 1, "cancelled").wait_for()
    assert await step(card, 1).get_attribute("data-state") == "cancelled"
    assert "Tokens in" in await figures(card)
    run = await newest(chat_server.site)
    assert run.status == "interrupted"
    await card.get_by_role("button", name="Ask again").wait_for()


async def test_cancelling_before_the_run_is_known_says_where_to_look(
    page: Page, chat_server: ChatServer
) -> None:
    held: list[str] = []
    await page.route("**/v1/responses", lambda route: held.append(route.request.url))
    card = await asked(page, chat_server.site.address)
    await page.get_by_role("button", name="Stop").click()
    await card.locator('[data-status="interrupted"]').wait_for()
    await card.get_by_role("link", name="the runs").wait_for()
    assert len(held) == 1


async def test_a_server_that_goes_away_is_reported_and_its_run_watched_when_it_is_back(
    page: Page, chat_server: ChatServer, watched: Watched
) -> None:
    watched.allow("net::ERR_")
    chat_server.bob.hold()
    async with wire_to(chat_server.site.address) as wire:
        watched.origins.add(f"{wire.address}/")
        card = await unfolded(await asked(page, wire.address))
        await step(card, 0, "done").wait_for()
        wire.cut()
        await card.get_by_text("The connection to the server was lost").wait_for()
        await card.get_by_role("button", name="Ask again").wait_for()
        await wait_until_cancelled(chat_server.bob)
        await card.get_by_role("button", name="Watch the run").click()
        await card.get_by_text("The connection to the server was lost").wait_for()
        wire.mend()
        await card.get_by_role("button", name="Watch the run").click()
        await card.locator('[data-status="interrupted"]').wait_for()
        await step(card, 0, "done").wait_for()
        assert await card.get_by_role("heading", name="podium-ultra").evaluate(IS_FOCUSED)


async def test_a_server_that_is_away_from_the_start_says_so(
    page: Page, chat_server: ChatServer, watched: Watched
) -> None:
    watched.allow("net::ERR_")
    async with wire_to(chat_server.site.address) as wire:
        watched.origins.add(f"{wire.address}/")
        await opened(page, wire.address)
        await page.evaluate(LOAD_TURNS)
        wire.cut()
        await page.get_by_role("button", name="Send", exact=True).click()
        card = version(page, "podium-ultra")
        await card.get_by_text("Is podium serve still running?").wait_for()
        wire.mend()
        await card.get_by_role("button", name="Ask again").click()
        await answered(card)


async def test_a_budget_that_is_spent_is_reported_with_its_run(
    page: Page, chat_server: ChatServer, watched: Watched
) -> None:
    watched.allow("402 (Payment Required)")
    await opened(page, chat_server.site.address)
    await options(page)
    await page.get_by_label("Budget, USD").fill("0.0000001")
    await page.get_by_role("button", name="Send", exact=True).click()
    card = version(page, "podium-ultra")
    await card.get_by_role("alert").filter(has_text="budget").wait_for()
    await card.get_by_role("button", name="Ask again").wait_for()


async def test_a_rate_limited_client_sees_how_long_to_wait(
    page: Page, chat_server: ChatServer, watched: Watched, clock: Clock
) -> None:
    watched.allow("429 (Too Many Requests)")
    await refuse(page, 429, "too many requests with this key", {"Retry-After": "7"})
    card = await asked(page, chat_server.site.address)
    await card.get_by_text("too many requests with this key").wait_for()
    waiting = card.get_by_role("button", name="Ask again in 7 s")
    assert await waiting.is_disabled()
    await page.unroute("**/v1/responses")
    await clock.run_for(8000)
    await card.get_by_role("button", name="Ask again", exact=True).click()
    await answered(card)


async def test_a_key_that_may_not_read_runs_still_gets_the_answer(
    page: Page, chat_server: ChatServer, watched: Watched
) -> None:
    watched.allow("403 (Forbidden)")
    await refuse(page, 403, "this key may not read runs", where="**/events")
    card = await asked(page, chat_server.site.address)
    await card.get_by_text("What is done meanwhile cannot be shown: this key may not").wait_for()
    await answered(card)
    assert await card.locator(".answer").inner_text() == "No: 91 is 7 times 13."


async def test_an_answer_of_a_server_that_stops_says_that_the_rest_is_missing(
    page: Page, chat_server: ChatServer, watched: Watched
) -> None:
    watched.allow("net::ERR_")
    await page.route("**/events", lambda route: route.abort())
    card = await asked(page, chat_server.site.address)
    await answered(card)
    await card.get_by_text("The connection to the server was lost before the run ended").wait_for()
    await card.get_by_role("link", name="Open the run").wait_for()
    assert await card.get_by_role("button", name="Ask again").count() == 0


async def test_a_worker_that_fails_is_seen_where_it_failed(
    page: Page, chat_server: ChatServer
) -> None:
    chat_server.ada.fails = "its line is down"
    card = await unfolded(await asked(page, chat_server.site.address))
    await step(card, 0, "failed").wait_for()
    await card.locator(".version-step").nth(0).click()
    await card.locator(".version-step").nth(0).get_by_text("its line is down").wait_for()


async def test_an_answer_whose_own_stream_comes_after_the_run_is_shown_once(
    on_a_page: Page,
) -> None:
    shown = await on_a_page.evaluate(
        """async () => {
            const { Version } = await import('/static/parts/version.js');
            const version = new Version('podium', new AbortController().signal);
            const budget = { spent: { seconds: 1, calls: 1 } };
            const ended = { run_id: 'run_1', status: 'partial', error: 'step 2 failed' };
            const run = { ...ended, answer: 'Fine.', usage: {}, cost_usd: 0, budget };
            version.happened('run_done', run);
            version.said('Fine.');
            await new Promise((done) => setTimeout(done, 300));
            return version.element.querySelector('.answer').textContent.trim();
        }"""
    )
    assert shown == "Fine."


async def test_a_conversation_survives_a_reload_and_the_way_back(
    page: Page, chat_server: ChatServer
) -> None:
    await page.goto(chat_server.site.url("/runs"))
    card = await asked(page, chat_server.site.address)
    await answered(card)
    await options(page)
    await page.get_by_label("Budget, seconds").fill("60")
    await page.get_by_label("Message").fill("And 97?")
    await page.reload()
    await answered(version(page, "podium-ultra"))
    assert await page.get_by_label("Message").input_value() == "And 97?"
    assert await page.get_by_label("Budget, seconds").input_value() == "60"
    assert await page.get_by_label("Model").input_value() == "podium-ultra"
    await card.get_by_role("link", name="Open the run").click()
    await page.wait_for_url("**/runs/run_*")
    await page.go_back()
    await answered(version(page, "podium-ultra"))
    await unfolded(version(page, "podium-ultra"))
    await step(version(page, "podium-ultra"), 2, "done").wait_for()
    assert QUESTION.split()[0] not in page.url
    await page.go_back()
    await page.wait_for_url("**/runs")
    assert len(chat_server.ada.asked) == 1, "nothing is asked again"


async def test_a_run_that_was_deleted_meanwhile_is_reported_as_gone(
    page: Page, chat_server: ChatServer, watched: Watched
) -> None:
    watched.allow("404 (Not Found)")
    await answered(await asked(page, chat_server.site.address))
    run = await newest(chat_server.site)
    await chat_server.site.service.store.delete(run.id)
    await page.wait_for_url("**/?chat=*")
    await page.reload()
    await unfolded(version(page, "podium-ultra"))
    await version(page, "podium-ultra").get_by_text("it was deleted").wait_for()


async def test_a_run_with_a_dead_process_is_shown_as_interrupted(
    page: Page, chat_server: ChatServer
) -> None:
    lost = Run(
        id=new_run_id(),
        question=QUESTION,
        status="running",
        pool=chat_server.site.service.pool,
        conductor="fixed",
        created_at=timestamp(),
        process="",
    )
    await chat_server.site.keep(lost)
    turn = {
        **{"id": "1", "after": None, "question": QUESTION, "files": [], "model": "podium"},
        **{"system": "", "podium": {}, "shown": "2"},
        "versions": [
            {"id": "2", "kind": "answer", "title": "podium-ultra", "run": lost.id, "text": ""}
        ],
    }
    chat = {"turns": [turn], "settings": {}}
    await chat_server.site.service.store.chats.save("", f"chat_{'0' * 32}", QUESTION, "", chat)
    await page.goto(chat_server.site.url(f"/?chat=chat_{'0' * 32}"))
    card = version(page, "podium-ultra")
    await card.locator('[data-status="interrupted"]').wait_for()
    await card.get_by_text("its process ended before it was done").wait_for()


async def test_leaving_the_page_stops_what_it_asked_for(
    page: Page, chat_server: ChatServer
) -> None:
    chat_server.bob.hold()
    card = await unfolded(await asked(page, chat_server.site.address))
    await step(card, 1, "running").wait_for()
    await page.get_by_role("link", name="Workers").click()
    await wait_until_cancelled(chat_server.bob)


async def test_with_keys_on_it_asks_for_one_and_then_answers(
    page: Page, site_with_keys: Site, watched: Watched
) -> None:
    watched.allow("401 (Unauthorized)")
    await page.goto(site_with_keys.address)
    await page.get_by_label("API key", exact=True).fill(site_with_keys.token)
    await page.get_by_role("dialog").get_by_role("button", name="Sign in").click()
    await page.get_by_role("dialog").wait_for(state="detached")
    await page.get_by_label("Message").fill("Why is the sky blue?")
    await page.get_by_role("button", name="Send", exact=True).click()
    card = version(page, "podium")
    await answered(card)
    await step(await unfolded(card), 0, "done").wait_for()


async def test_a_long_question_is_there_in_full(page: Page, chat_server: ChatServer) -> None:
    question = "Is 91 a prime?\n\n" + "It looks like one. " * 20
    await opened(page, chat_server.site.address, question)
    await page.keyboard.press("Control+Enter")
    await answered(version(page, "podium-ultra"))
    whole = page.locator(".message-words")
    assert (await whole.inner_text()).strip() == question.strip()


async def test_it_fits_a_small_window(page: Page, chat_server: ChatServer) -> None:
    await page.set_viewport_size({"width": 380, "height": 800})
    card = await unfolded(await asked(page, chat_server.site.address))
    await answered(card)
    await card.get_by_role("button", name="Edit the plan and run it again").click()
    await version(page, "Your plan").wait_for()
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_an_answer_is_followed_to_its_end(page: Page, chat_server: ChatServer) -> None:
    await page.set_viewport_size({"width": 380, "height": 500})
    card = await asked(page, chat_server.site.address)
    await answered(card)
    await card.get_by_role("link", name="Open the run").wait_for()
    await page.wait_for_function(
        "() => document.documentElement.scrollHeight - innerHeight - scrollY < 5"
    )


async def test_every_tier_can_be_read_in_a_small_window(
    page: Page, chat_server: ChatServer
) -> None:
    await page.set_viewport_size({"width": 380, "height": 800})
    await page.goto(chat_server.site.address)
    room = await page.get_by_label("Model").evaluate(
        """select => {
            const style = getComputedStyle(select);
            const pen = document.createElement('canvas').getContext('2d');
            pen.font = style.font;
            const words = [...select.options].map((option) => pen.measureText(option.text).width);
            const arrow = 24;
            const padding = parseFloat(style.paddingLeft) + parseFloat(style.paddingRight);
            return select.clientWidth - padding - arrow - Math.max(...words);
        }"""
    )
    assert room >= 0


async def test_everything_can_be_done_by_keyboard(page: Page, chat_server: ChatServer) -> None:
    await page.goto(chat_server.site.address)
    await page.get_by_label("Model").locator("option").nth(2).wait_for(state="attached")
    await page.keyboard.type(QUESTION)  # the question has the focus
    await tab_to(page, page.get_by_label("Model"))
    await page.keyboard.type("podium-ultra")
    await page.keyboard.press("Control+Enter")
    card = version(page, "podium-ultra")
    await answered(card)
    await card.locator(".version-fold > summary").focus()
    await page.keyboard.press("Enter")
    await tab_to(page, step(card, 0))
    await page.keyboard.press("ArrowDown")
    assert await step(card, 1).evaluate(IS_FOCUSED)
    await page.keyboard.press("ArrowRight")
    assert await step(card, 2).evaluate(IS_FOCUSED)
    await page.keyboard.press("Enter")
    assert await step(card, 2).get_attribute("aria-pressed") == "true"
    await card.locator(".version-step").nth(2).get_by_text("It reads steps 0–1.").wait_for()
    edit = card.get_by_role("button", name="Edit the plan and run it again")
    await tab_to(page, edit)
    await page.keyboard.press("Enter")
    yours = version(page, "Your plan")
    assert await yours.get_by_label("Subtask").first.evaluate(IS_FOCUSED)
    await page.keyboard.type(" and ")
    await page.keyboard.press("Control+Enter")
    await answered(yours)


async def test_steps_are_as_wide_as_their_words_where_there_is_room(
    page: Page, chat_server: ChatServer
) -> None:
    card = await unfolded(await asked(page, chat_server.site.address))
    await answered(card)
    words = await step(card, 2).locator("text").first.text_content()
    assert words == "2\u2002Compare both and answer"
    inside = """element => {
      const frame = element.querySelector('rect').getBoundingClientRect();
      const words = element.querySelector('text').getBoundingClientRect();
      return words.right <= frame.right;
    }"""
    assert await step(card, 2).evaluate(inside)
    box = card.locator(".graph-box")
    assert await box.evaluate("element => element.scrollWidth <= element.clientWidth")


@pytest.mark.parametrize("shape", ["chain", "wide", "dense"])
async def test_five_hundred_steps_are_drawn_and_react_at_once(
    page: Page, chat_server: ChatServer, shape: str
) -> None:
    await opened(page, chat_server.site.address)
    actions = await page.evaluate(LARGE, shape)
    took = {action: await busy(page, action) for action in actions}
    assert await page.locator("[data-step]").count() == 500
    assert max(took.values()) < 200, f"milliseconds: {took}"


async def say(page: Page, words: str) -> None:
    await page.get_by_label("Message").fill(words)
    await page.get_by_role("button", name="Send", exact=True).click()


def replies(page: Page) -> Locator:
    return page.locator(".version .answer")


async def test_several_turns_go_with_the_system_prompt_and_the_model_that_was_picked(
    page: Page, chat_server: ChatServer
) -> None:
    await opened(page, chat_server.site.address)
    await page.get_by_label("Model").select_option("ada")
    await options(page)
    await page.get_by_label("System prompt").fill("Be brief.")
    await page.keyboard.press("Control+Enter")
    await expect(replies(page)).to_have_text(["7 divides it."])
    await expect(page.locator(".took")).to_contain_text("$0.00012")
    await say(page, "And 97?")
    await expect(replies(page)).to_have_count(2)
    [first, second] = chat_server.ada.asked
    assert [(m.role, m.text.strip()) for m in second.messages if m.role != "system"] == [
        ("user", QUESTION),
        ("assistant", "7 divides it."),
        ("user", "And 97?"),
    ]
    for request in (first, second):
        assert "Be brief." in str(request)
    await expect(page.locator(".took")).to_have_count(2)
    await page.reload()
    await expect(replies(page)).to_have_count(2)
    assert await page.get_by_label("System prompt").input_value() == "Be brief."


async def test_regenerate_and_edit_begin_branches_that_can_be_gone_back_to(
    page: Page, chat_server: ChatServer
) -> None:
    await opened(page, chat_server.site.address)
    await page.get_by_label("Model").select_option("ada")
    await page.keyboard.press("Control+Enter")
    await say(page, "And 97?")
    await expect(replies(page)).to_have_count(2)
    chat_server.ada.line = "Divide by 7."
    await page.get_by_role("button", name="Regenerate").first.click()
    await expect(replies(page)).to_have_text(["Divide by 7."])
    await page.get_by_role("button", name="Previous answer").click()
    await expect(replies(page)).to_have_text(["7 divides it."] * 2)
    await page.get_by_role("button", name="Edit", exact=True).last.click()
    await page.get_by_label("Edited message").fill("And 98?")
    await page.get_by_role("button", name="Send as a new branch").click()
    await expect(replies(page)).to_have_text(["7 divides it.", "Divide by 7."])
    assert chat_server.ada.asked[-1].messages[-1].text == "And 98?"
    await page.get_by_role("button", name="Previous version of the message").click()
    await expect(page.get_by_role("region", name="And 97?")).to_be_visible()
    await page.reload()
    await expect(page.get_by_role("region", name="And 97?")).to_be_visible()
    await page.get_by_role("button", name="Next version of the message").click()
    await expect(page.get_by_role("region", name="And 98?")).to_be_visible()


async def test_conversations_are_listed_searched_and_deleted(
    page: Page, chat_server: ChatServer
) -> None:
    await opened(page, chat_server.site.address, "Who was Emmy Noether?")
    await page.keyboard.press("Control+Enter")
    await answered(version(page, "podium-ultra"))
    listed = page.get_by_role("navigation", name="Conversations").get_by_role("link")
    await expect(listed.first).to_contain_text("Emmy Noether")
    search = page.get_by_label("Search conversations")
    await search.fill("no such words")
    await expect(page.get_by_text("Nothing found for “no such words”.")).to_be_visible()
    await search.fill("noether")
    await expect(listed).to_have_count(1)
    await page.get_by_role("link", name="New chat").click()
    await page.get_by_role("heading", name="New chat").wait_for()
    await listed.filter(has_text="Noether").click()
    await answered(version(page, "podium-ultra"))
    await page.get_by_role("button", name="Delete").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await page.get_by_role("heading", name="New chat").wait_for()
    await expect(listed.filter(has_text="Noether")).to_have_count(0)


async def test_a_message_whose_page_was_left_at_once_can_be_asked_again(
    page: Page, chat_server: ChatServer
) -> None:
    await page.route("**/v1/responses", lambda route: None)
    await asked(page, chat_server.site.address)
    await page.wait_for_url("**/?chat=*")
    await page.get_by_role("link", name="Runs", exact=True).click()
    await page.get_by_role("heading", level=1, name="Runs").wait_for()
    await page.unroute_all(behavior="ignoreErrors")
    await page.go_back()
    await version(page, "podium-ultra").get_by_role("button", name="Ask again").click()
    await answered(version(page, "podium-ultra"))


async def test_an_example_is_written_into_the_message(page: Page, chat_server: ChatServer) -> None:
    await page.goto(chat_server.site.address)
    await page.get_by_role("button", name="Compare tea and coffee").click()
    await expect(page.get_by_label("Message")).to_have_value(re.compile("tea and coffee"))
    await expect(page.get_by_label("Message")).to_be_focused()


async def test_images_and_texts_go_with_a_message_and_others_are_refused(
    page: Page, serve: Serve, tmp_path: Path
) -> None:
    ada = Paced("ada", "7 divides it.", price=1.0)
    ada.profile = replace(ada.profile, capabilities=frozenset({"vision"}))
    notes, large, binary = (tmp_path / name for name in ("notes.txt", "large.txt", "a.bin"))
    notes.write_text("91 = 7 x 13", "utf-8")
    large.write_text("x" * 300_000, "utf-8")
    binary.write_bytes(b"\0\xff")
    picture = tmp_path / "dot.png"
    picture.write_bytes(base64.b64decode(DOT))
    async with serve([ada]) as site:
        await opened(page, site.address)
        await page.get_by_label("Model").select_option("ada")
        chosen = page.get_by_label("Files to attach")
        await chosen.set_input_files([large, binary])
        problem = page.locator(".attachments").get_by_role("alert")
        await expect(problem).to_contain_text(
            "large.txt has 0.3 MB; the limit for a text file is 0.2 MB. "
            "a.bin is neither an image nor text in UTF-8."
        )
        await chosen.set_input_files([notes, picture])
        await expect(page.locator(".attachments .file")).to_have_text([r"notes.txt×", "dot.png×"])
        await page.get_by_role("button", name="Send", exact=True).click()
        await expect(replies(page)).to_have_count(1)
        message = ada.asked[-1].messages[-1]
        assert "91 = 7 x 13" in message.text
        assert any(isinstance(part, Image) for part in message.parts)
        await expect(page.locator(".took")).to_have_count(1)
        await page.reload()
        await expect(page.locator(".message .file")).to_have_text(["notes.txt", "dot.png"])


async def test_a_conversation_is_exported_as_markdown_and_json(
    page: Page, chat_server: ChatServer
) -> None:
    await answered(await asked(page, chat_server.site.address))
    await page.get_by_role("button", name="Export").click()
    read = {}
    for kind in ("Markdown", "JSON"):
        async with page.expect_download() as download:
            await page.get_by_role("link", name=kind).click()
        read[kind] = (await (await download.value).path()).read_text("utf-8")
    assert read["Markdown"].startswith(f"# {QUESTION}\n\n## You\n\n{QUESTION}\n\n## podium-ultra")
    assert ANSWER in read["Markdown"]
    assert json.loads(read["JSON"])["turns"][0]["question"] == QUESTION


async def test_a_link_is_read_with_another_key_until_it_is_revoked(
    page: Page, site_with_keys: Site, watched: Watched
) -> None:
    watched.allow("401 (Unauthorized)", "404 (Not Found)")
    site = site_with_keys
    made = make_key("Bob", Rules())
    await site.store.keys.add(made.key)
    await page.goto(site.address)
    await sign_in(page, site.token)
    await say(page, "Why is the sky blue?")
    await answered(version(page, "podium"))
    await page.get_by_role("button", name="Share").click()
    await page.get_by_role("button", name="Create a link").click()
    link = await page.locator(".share-link code").inner_text()
    await page.get_by_role("button", name="Close").click()
    await page.get_by_role("button", name="Sign out").click()
    await sign_in(page, made.token)
    await page.get_by_role("dialog").wait_for(state="detached")
    await page.goto(link)
    await expect(replies(page)).to_have_count(1)
    await expect(page.get_by_label("Message")).to_be_hidden()
    await expect(page.get_by_role("button", name="Share")).to_have_count(0)
    headers = {"Authorization": f"Bearer {site.token}"}
    async with httpx.AsyncClient(base_url=site.address, headers=headers) as client:
        [chat] = (await client.get("/v1/chats")).json()["data"]
        assert (await client.delete(f"/v1/chats/{chat['id']}/share")).status_code == 200
    await page.reload()
    await expect(page.get_by_text("conversation not found")).to_be_visible()


async def test_the_first_page_is_small_and_nothing_shifts(
    page: Page, chat_server: ChatServer, fresh_profile: None
) -> None:
    await page.add_init_script(SHIFTS)
    await page.goto(chat_server.site.address)
    await page.get_by_label("Model").locator("option").nth(5).wait_for(state="attached")
    await page.wait_for_load_state("networkidle")
    size, shift = await page.evaluate(
        """() => [
            performance.getEntriesByType('resource').concat(
                performance.getEntriesByType('navigation')
            ).reduce((sum, entry) => sum + entry.transferSize, 0),
            window.shifted,
        ]"""
    )
    assert 10_000 < size <= 100_000
    assert shift < 0.0005


LOAD_TURNS = """async () => {
  const { src } = document.querySelector('script[type=module]');
  await import(src.replace('app.js', 'parts/turn.js'));
}"""

DOT = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwAD"
    "hgGAWjR9awAAAABJRU5ErkJggg=="
)

IS_FOCUSED = "element => element === document.activeElement"

LARGE = """async (shape) => {
  const { LiveRound } = await import('/static/parts/live-round.js');
  const access = {
    chain: (index) => (index ? [index - 1] : []),
    wide: () => [],
    dense: (index) => (index < 250 ? [] : Array.from({ length: 250 }, (_, read) => read)),
  }[shape];
  const steps = Array.from({ length: 500 }, (_, index) => ({
    worker: `worker-${index % 7}`, subtask: `Look at part ${index}`, access: access(index),
  }));
  const ended = {
    index: 400, status: 'done', reply: 'x', error: null, cost_usd: 0.1,
    usage: { input_tokens: 10, output_tokens: 5 }, started_ms: 0, finished_ms: 1,
  };
  let round;
  const last = () => round.element.querySelector('[data-step="499"]');
  window.act = {
    draw: () => {
      round = new LiveRound({ steps }, { label: 'Large' });
      document.querySelector('.page').append(round.element);
    },
    start: () => round.happened('step_started', { index: 400 }),
    end: () => round.happened('step_done', ended),
    select: () => last().dispatchEvent(new MouseEvent('click', { bubbles: true })),
    arrow: () => last().dispatchEvent(
      new KeyboardEvent('keydown', { key: 'ArrowUp', bubbles: true })),
  };
  return Object.keys(window.act);
}"""

DONE_AND_PAINTED = """(action) => new Promise((resolve) => {
  window.act[action]();
  requestAnimationFrame(() => setTimeout(resolve));
})"""


async def busy(page: Page, action: str) -> float:
    """For how many milliseconds an action has the page at work, until it is painted: by the clock
    of its thread, for other processes may have the machine meanwhile."""
    session = await page.context.new_cdp_session(page)
    await session.send("Performance.enable", {"timeDomain": "threadTicks"})

    async def at_work() -> float:
        results = await session.send("Performance.getMetrics")
        metrics = {item["name"]: item["value"] for item in results["metrics"]}
        return float(metrics["TaskDuration"])

    before = await at_work()
    await page.evaluate(DONE_AND_PAINTED, action)
    took = await at_work() - before
    await session.detach()
    return 1000 * took


class Improving(Conductor):
    """A conductor that is never content with the first answer, and always with the second."""

    name = "improving"

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        if not context.rounds:
            return Plan(Workflow((Step("ada", "Guess"),)))
        return Plan(JOIN if len(context.rounds) == 1 else None)


async def newest(site: Site) -> Run:
    """The run that was asked for last, once all of it is written."""
    [summary] = await site.service.store.list(RunFilter(), limit=1)
    return await site.service.store.load(summary.id)


async def wait_until_cancelled(worker: Paced) -> None:
    """A call of that worker was cancelled."""
    async with asyncio.timeout(10):
        await worker.cancelled.wait()


async def refuse(
    page: Page,
    status: int,
    message: str,
    headers: dict[str, str] | None = None,
    where: str = "**/v1/responses",
) -> None:
    """Have the server say no, in its own words."""

    async def fulfil(route: Route) -> None:
        body = json.dumps({"error": {"message": message}})
        await route.fulfill(
            status=status, body=body, content_type="application/json", headers=headers
        )

    await page.route(where, fulfil)


async def tab_to(page: Page, wanted: Locator) -> None:
    """Go there with the tabulator."""
    for _ in range(40):
        await page.keyboard.press("Tab")
        if await wanted.evaluate(IS_FOCUSED):
            return
    raise AssertionError("the tabulator never comes there")
