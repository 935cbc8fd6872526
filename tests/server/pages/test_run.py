"""A run's page: everything that was done, while it is done and afterwards, and what is said where
there is nothing to show."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import httpx
import pytest

from podium.conductors import FixedConductor
from podium.core.request import NO_USAGE, Message, ToolCall, Usage
from podium.core.routing import RoutingRecord
from podium.core.run import Attempt, Round, Run, load
from podium.core.worker import Worker
from podium.core.workflow import Step, Workflow
from podium.workers import ScriptedWorker
from support.paced import Paced
from support.runs_on_record import GONE, kept_run, long_run, round_of, step_record
from support.site import Site, site_over

expect = pytest.importorskip("playwright.async_api").expect

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page, Route

    from server.pages.conftest import Clock, Serve, Watched

COUNT = Workflow((Step("solver", "Count"),))
PLAN = Workflow((Step("solver", "Draft it"), Step("checker", "Check it", (0,))))
WITHIN_MILLISECONDS = 200
TRIES = 5
"""How often it is measured: the quickest counts, for whatever else a machine does is not ours."""


def run_url(site: Site, run: Run | str, query: str = "") -> str:
    return site.url(f"/runs/{run if isinstance(run, str) else run.id}{query}")


def step(page: Page, index: int, round_: int = 0) -> Locator:
    return page.locator(f"#step-{round_}-{index}")


def visited(
    serve: Serve, workers: Sequence[Worker], plan: Workflow
) -> AbstractAsyncContextManager[Site]:
    """A server over workers of the test's own, which all carry out this plan."""
    return serve(workers, conductor=FixedConductor(plan), drain_seconds=0.001)


async def test_a_run_shows_what_was_asked_answered_and_taken(page: Page, site: Site) -> None:
    run_id = await site.ask("Compare two explanations of the blue sky.")
    await page.goto(run_url(site, run_id))
    await page.get_by_role("heading", level=1, name="Compare two explanations").wait_for()
    assert await page.title() == "Compare two explanations of the blue sky. · Podium"
    head = await page.locator(".run-head").inner_text()
    for shown in (run_id, "answered", "podium-ultra", "rules", "Tokens", "3"):
        assert shown in head
    assert "Air scatters" in await page.locator(".run-answer").inner_text()
    assert await page.locator(".graph-step").count() == 3
    assert await page.locator(".timeline-row").count() == 3
    assert await page.locator(".matrix-read").count() == 2
    assert await page.locator(".step").count() == 3


async def test_a_step_in_the_list_shows_its_reply_and_that_it_opens(page: Page, site: Site) -> None:
    await site.keep(kept_run())
    await page.goto(run_url(site, kept_run()))
    head = page.locator(".step-head").first
    reply = kept_run().steps[0].reply
    await head.locator(".step-said").get_by_text(reply).wait_for()
    mark = "element => getComputedStyle(element, '::before').content"
    assert "›" in await head.locator(".step-number").evaluate(mark)


async def test_numbers_in_a_plan_are_reported_with_the_names_that_they_mean(
    page: Page, site: Site
) -> None:
    (planned,) = kept_run().rounds
    written = 'model_id = [4]\nsubtasks = ["Do it"]\naccess_list = [[]]'
    run = kept_run(rounds=(replace(planned, plan_text=written),))
    await site.keep(run)
    await page.goto(run_url(site, run))
    await page.get_by_text("How it was planned").click()
    worker = planned.steps[0].worker
    await page.get_by_text(f"Workers by their numbers: 4 is {worker}.").wait_for()


async def test_a_run_reports_what_a_router_decided(page: Page, site: Site) -> None:
    (planned,) = kept_run().rounds
    routing = RoutingRecord(
        worker="solver",
        confidence=0.93,
        scores={"solver": 0.9},
        quality_bias=0.25,
        router="0123456789ab",
    )
    run = kept_run(rounds=(replace(planned, plan_text="", routing=routing),))
    await site.keep(run)
    await page.goto(run_url(site, run))
    await page.get_by_text("How it was planned").click()
    await page.get_by_text(routing.explanation).wait_for()


async def test_a_run_shows_what_began_early_and_was_cancelled(page: Page, site: Site) -> None:
    (planned,) = kept_run().rounds
    error = "the plan does not contain it"
    began = replace(planned.steps[0], worker="checker", status="cancelled", reply="", error=error)
    run = kept_run(rounds=(replace(planned, cancelled_steps=(began,)),))
    await site.keep(run)
    await page.goto(run_url(site, run))
    await page.get_by_text("How it was planned").click()
    await page.get_by_text(f"checker began early and was cancelled: {error}.").wait_for()


async def test_a_step_shows_exactly_what_its_worker_received(page: Page, serve: Serve) -> None:
    checker = ScriptedWorker("checker", "It **holds**.")
    workers = [ScriptedWorker("solver", "<b>because</b> of\tscattering"), checker]
    async with visited(serve, workers, PLAN) as site:
        run_id = await site.ask("Why?")
        await page.goto(run_url(site, run_id))
        await step(page, 1).locator("summary").click()
        said = step(page, 1).locator(".conversation .said")
        assert await said.inner_text() == checker.requests[0].messages[0].text
        text = await step(page, 1).inner_text()
        for shown in ("Check it", "reads step 0", "answered", "checker"):
            assert shown in text
        assert "holds" in await step(page, 1).locator(".prose").last.inner_text()


async def test_an_address_can_name_a_step_and_opening_one_changes_it(
    page: Page, site: Site
) -> None:
    await site.keep(long_run(4))
    await page.goto(run_url(site, long_run(4), "?step=0.2"))
    await step(page, 2).get_by_text("prompt 2").wait_for()
    assert await page.evaluate("document.activeElement.closest('details').id") == "step-0-2"
    await step(page, 1).locator("summary").click()
    await page.wait_for_function("() => location.search === '?step=0.1'")
    await page.reload()
    await step(page, 1).get_by_text("prompt 1").wait_for()


async def test_the_way_back_from_a_run_leads_to_the_list_it_came_from(
    page: Page, site: Site
) -> None:
    await site.keep(long_run(3))
    await page.goto(site.url("/runs?text=question"))
    await page.get_by_role("link", name="Question 0?").click()
    await step(page, 0).locator("summary").click()
    await page.wait_for_function("() => location.search === '?step=0.0'")
    await page.go_back()
    await page.get_by_label("Search").wait_for()
    assert page.url == site.url("/runs?text=question")


async def test_waits_retries_and_fallbacks_are_shown(page: Page, site: Site) -> None:
    calls = (
        Attempt("solver", NO_USAGE, 0.0, 300.0, 600.0, "too many requests"),
        Attempt("checker", Usage(10, 5, 0, 0, 0), 0.5, 800.0, 1000.0),
    )
    first = replace(step_record(0, attempts=calls), answered_by="checker")
    second = step_record(1, access=(0,))
    await site.keep(kept_run(rounds=(round_of(first, second),)))
    await page.goto(run_url(site, kept_run()))
    row = page.locator(".timeline-row").first
    await row.wait_for()
    kinds = await row.locator(".bar").evaluate_all("bars => bars.map((bar) => bar.className)")
    assert kinds == ["bar queue", "bar call failed", "bar queue", "bar call"]
    assert "too many requests" in (await row.locator(".failed").get_attribute("title") or "")
    assert "solver → checker" in await row.inner_text()
    waited = page.locator(".timeline-row").nth(1).locator(".bar").first
    assert await waited.get_attribute("class") == "bar blocked"
    await step(page, 0).locator("summary").click()
    rows = step(page, 0).locator("tbody tr")
    assert "too many requests" in await rows.nth(0).inner_text()
    assert "answered" in await rows.nth(1).inner_text()


async def test_rounds_stand_side_by_side_and_each_can_be_looked_at(page: Page, site: Site) -> None:
    first = round_of(step_record(0), step_record(1, access=(0,)))
    second = round_of(step_record(0, round_=1, access="all"), index=1)
    accepted = Round(2, None, accepts_answer=True)
    turn = replace(first, role="worker")
    await site.keep(kept_run(rounds=(turn, second, accepted), max_rounds=3))
    await page.goto(run_url(site, kept_run()))
    columns = page.locator(".round")
    await columns.nth(2).wait_for()
    boxes = [await columns.nth(at).bounding_box() for at in range(3)]
    assert len({box["y"] for box in boxes if box}) == 1
    assert "accepted" in await columns.nth(2).inner_text()
    assert "reply 1" in await columns.nth(0).inner_text()
    assert "A turn as worker." in await columns.nth(0).inner_text()
    assert "A turn as" not in await columns.nth(1).inner_text()
    await step(page, 0, 1).wait_for()
    assert await page.locator("th", has_text="Round 1").count() == 1
    await page.get_by_role("button", name="Round 1", exact=True).click()
    await step(page, 1, 0).wait_for()
    assert urlsplit(page.url).query == "round=0"


async def test_a_nested_run_is_shown_inside_its_step(page: Page, site: Site) -> None:
    inner = kept_run(7, question="Do part 0", depth=1)
    outer = replace(step_record(0, attempts=()), nested=(inner,))
    await site.keep(kept_run(rounds=(round_of(outer),)))
    await page.goto(run_url(site, kept_run(), "?step=0.0"))
    nested = page.locator(".nested-run")
    await nested.get_by_text(inner.id).wait_for()
    await nested.locator("summary").click()
    await nested.get_by_text("prompt 0").wait_for()


@pytest.fixture
def paced() -> Paced:
    return Paced("solver", "One two three", price=2.0)


async def asked_in_background(site: Site, **body: object) -> tuple[asyncio.Task[None], str]:
    """A question that is being answered, and the run's id."""

    async def ask() -> None:
        asked = {"model": "podium-ultra", "stream": True, **body}
        asked["messages"] = [{"role": "user", "content": "Count!"}]
        async with (
            httpx.AsyncClient(base_url=site.address, timeout=20) as client,
            client.stream("POST", "/v1/chat/completions", json=asked) as response,
        ):
            async for _ in response.aiter_lines():
                pass

    task = asyncio.create_task(ask())
    result = site.service.repository.broadcast._events
    while not result:
        assert not task.done(), "the question was refused"
        await asyncio.sleep(0.005)
    return task, next(iter(result))


@asynccontextmanager
async def going_on(serve: Serve, paced: Paced, **body: object) -> AsyncIterator[tuple[Site, str]]:
    """A server, and the id of a run in progress until its worker is released."""
    paced.hold()
    async with visited(serve, [paced], COUNT) as site:
        task, run_id = await asked_in_background(site, **body)
        yield site, run_id
        await task


async def test_a_run_in_progress_is_followed_and_ends_by_itself(
    page: Page, serve: Serve, paced: Paced
) -> None:
    async with going_on(serve, paced) as (site, run_id):
        await page.goto(run_url(site, run_id))
        await page.get_by_text("This run is in progress").wait_for()
        await step(page, 0).get_by_text("running").wait_for()
        assert await page.locator(".bar.running").count() == 1
        assert await page.get_by_role("button", name="Delete").is_disabled()
        paced.say(2)
        await page.wait_for_function(
            "() => document.querySelector('.run-answer').textContent.trim() === 'One two'"
        )
        paced.go_on()
        await page.locator(".run-head").get_by_text("answered").wait_for()
        assert "One two three" in await page.locator(".run-answer").inner_text()
        assert "$0.00024" in await page.locator(".run-head").inner_text()
        assert await page.get_by_text("This run is in progress").count() == 0


async def test_worker_prompt_is_shown_while_it_works(
    page: Page, serve: Serve, paced: Paced
) -> None:
    async with going_on(serve, paced) as (site, run_id):
        await page.goto(run_url(site, run_id))
        await step(page, 0).get_by_text("running").wait_for()
        await step(page, 0).locator("summary").click()
        said = step(page, 0).locator(".conversation .said")
        await said.wait_for()
        assert await said.inner_text() == paced.asked[0].messages[0].text
        assert await step(page, 0).get_by_text("Its reply").count() == 0
        paced.go_on()
        await step(page, 0).get_by_text("Its reply").wait_for()


async def test_a_session_that_ended_is_reported_on_a_runs_page_without_a_dialog(
    page: Page, serve: Serve, paced: Paced, watched: Watched
) -> None:
    watched.allow("401")
    async with going_on(serve, paced) as (site, run_id):
        await page.route("**/events", lambda route: route.fulfill(status=401, body="{}"))
        await page.goto(run_url(site, run_id))
        await page.get_by_text("Not signed in.").wait_for()
        assert await page.get_by_role("dialog").count() == 0
        paced.go_on()


async def test_a_run_of_which_nothing_is_kept_says_so_when_it_ends(
    page: Page, serve: Serve, paced: Paced, watched: Watched
) -> None:
    watched.allow("404")
    async with going_on(serve, paced, store=False) as (site, run_id):
        await page.goto(run_url(site, run_id))
        await step(page, 0).get_by_text("running").wait_for()
        paced.go_on()
        await page.get_by_text("was not stored").wait_for()
        assert "One two three" in await page.locator(".run-answer").inner_text()


async def test_a_server_that_goes_away_in_mid_stream_is_reported(
    page: Page, tmp_path: Path, paced: Paced, watched: Watched
) -> None:
    watched.allow("ERR_")
    paced.hold()
    async with AsyncExitStack() as stack:
        conductor = FixedConductor(COUNT)
        server = site_over(tmp_path, [paced], conductor=conductor, drain_seconds=0.001)
        site = await stack.enter_async_context(server)
        watched.origins.add(f"{site.address}/")
        task, run_id = await asked_in_background(site)
        await page.goto(run_url(site, run_id))
        await step(page, 0).get_by_text("running").wait_for()
        paced.say(2)
        await page.locator(".run-answer").get_by_text("One two").wait_for()
        await stack.aclose()
        task.cancel()
        await page.get_by_text("The connection to the server was lost").wait_for()
        assert "One two" in await page.locator(".run-answer").inner_text(), "what was told stays"
        await page.get_by_role("button", name="Try now").click()
        await page.get_by_text("cannot be reached").wait_for()


async def test_after_a_stream_that_broke_off_the_run_is_followed_again(
    page: Page, serve: Serve, paced: Paced
) -> None:
    broken: list[str] = []

    async def break_off_once(route: Route) -> None:
        if broken:
            await route.continue_()
            return
        broken.append(route.request.url)
        body = 'event: run_started\ndata: {"run_id": "another"}\n\n'
        await route.fulfill(content_type="text/event-stream", body=body)

    async with going_on(serve, paced) as (site, run_id):
        await page.route("**/events", break_off_once)
        await page.goto(run_url(site, run_id))
        await page.get_by_text("The connection to the server was lost").wait_for()
        await page.get_by_role("button", name="Try now").click()
        await step(page, 0).get_by_text("running").wait_for()
        assert await page.get_by_text("The connection to the server was lost").count() == 0
        paced.go_on()
        await page.locator(".run-head").get_by_text("answered").wait_for()


def half_way() -> Round:
    """A round of three steps: one done, one failed, one skipped."""
    return round_of(
        step_record(0),
        step_record(1, access=(0,), status="failed", error="checker refused"),
        step_record(2, access=(1,), status="skipped", error="nothing to read", attempts=()),
    )


WITHOUT_A_PROPER_ANSWER: Final = (
    ("failed", "step 1 (checker) failed", "failed before there was an answer", "runs resume run_"),
    ("partial", "step 1 (checker) failed", "the answer is the best so far", "runs resume run_"),
    ("interrupted", None, "This run was interrupted", "runs resume run_"),
    ("exhausted", "1 call is spent", "The budget was spent", "--budget-usd"),
)


async def test_a_run_without_a_proper_answer_says_why_and_how_to_go_on(
    page: Page, site: Site
) -> None:
    for number, (status, error, words, onwards) in enumerate(WITHOUT_A_PROPER_ANSWER):
        run = kept_run(number, rounds=(half_way(),), status=status, error=error, answer=None)
        await site.keep(run)
        await page.goto(run_url(site, run))
        notice = page.locator(".run-notice")
        await notice.get_by_text(words).wait_for()
        text = await notice.inner_text()
        assert onwards in text
        assert (error or "") in text
    assert await page.locator(".matrix-lost").count() == 1
    await step(page, 1).locator("summary").click()
    await step(page, 1).get_by_text("prompt 1").wait_for()
    await step(page, 2).locator("summary").click()
    await step(page, 2).get_by_text("no worker was asked").wait_for()


async def test_a_run_with_a_dead_process_is_interrupted(page: Page, site: Site) -> None:
    await site.keep(
        kept_run(
            status="running",
            answer=None,
            rounds=(round_of(step_record(0), planned=2),),
            process=GONE,
        )
    )
    await page.goto(run_url(site, kept_run()))
    await page.get_by_text("This run was interrupted").wait_for()
    assert "interrupted" in await page.locator(".crumb").inner_text()
    assert "waiting" in await step(page, 1).inner_text()


async def test_a_run_that_waits_for_tools_names_them(page: Page, site: Site) -> None:
    call = Message("assistant", (ToolCall("call_1", "clock", '{"zone": "UTC"}'),))
    held = step_record(0, status="waiting", turns=(call,))
    await site.keep(kept_run(status="waiting", answer=None, rounds=(round_of(held),)))
    await page.goto(run_url(site, kept_run(), "?step=0.0"))
    await page.get_by_text("waits for the results of the tool clock").wait_for()
    await step(page, 0).get_by_text('{"zone": "UTC"}').wait_for()


async def test_a_run_that_waited_for_tools_is_followed_when_it_continues(
    page: Page, site: Site, clock: Clock
) -> None:
    call = Message("assistant", (ToolCall("call_1", "clock", "{}"),))
    held = step_record(0, status="waiting", turns=(call,))
    await site.keep(kept_run(status="waiting", answer=None, rounds=(round_of(held),)))
    await page.goto(run_url(site, kept_run()))
    await page.get_by_text("waits for the results of the tool clock").wait_for()
    await site.store.finish(kept_run())
    await clock.run_for(4_000)
    await page.locator(".run-answer").get_by_text("Answer 0.").wait_for()


async def test_a_run_that_is_not_there_says_so_and_leads_to_the_others(
    page: Page, site: Site, watched: Watched
) -> None:
    watched.allow("404")
    await page.goto(site.url("/runs/run_nowhere"))
    await page.get_by_role("heading", name="Run not found: run_nowhere").wait_for()
    assert "key" not in await page.get_by_role("alert").inner_text()
    await expect(page.get_by_role("button", name="Try again")).to_have_count(0)
    await page.get_by_role("link", name="All runs").click()
    await page.get_by_text("There are no runs yet").wait_for()


def rewritten(directory: Path, version: int) -> None:
    with sqlite3.connect(directory / "runs.db") as database:
        database.execute(f"UPDATE runs SET document = json_set(document, '$.version', {version})")
    database.close()


async def test_a_run_of_a_later_version_says_what_to_upgrade(
    page: Page, site: Site, watched: Watched, tmp_path: Path
) -> None:
    watched.allow("500")
    await site.keep(kept_run())
    rewritten(tmp_path, 99)
    await page.goto(run_url(site, kept_run()))
    await page.get_by_role("heading", name="another version of Podium").wait_for()
    assert "Upgrade Podium" in await page.get_by_role("alert").inner_text()
    rewritten(tmp_path, 1)
    await page.get_by_role("button", name="Try again").click()
    await page.get_by_role("heading", name="Question 0?").wait_for()


async def test_a_run_of_an_old_version_is_shown_as_far_as_it_goes(
    page: Page, site: Site, tmp_path: Path
) -> None:
    await site.keep(kept_run())
    rewritten(tmp_path, 1)
    with sqlite3.connect(tmp_path / "runs.db") as database:
        bare = "json_remove(document, '$.prompt', '$.attempts', '$.answered_by', '$.turns')"
        database.execute(f"UPDATE steps SET document = {bare}")
    database.close()
    await page.goto(run_url(site, kept_run(), "?step=0.0"))
    await step(page, 0).get_by_text("Nothing on record").wait_for()
    assert "Answer 0." in await page.locator(".run-answer").inner_text()


async def test_a_run_is_deleted_only_when_that_is_confirmed(page: Page, site: Site) -> None:
    await site.keep(kept_run())
    await page.goto(run_url(site, kept_run()))
    await page.get_by_role("button", name="Delete").click()
    assert "key" not in await page.get_by_role("dialog").inner_text()
    await page.get_by_role("button", name="Keep it").click()
    assert (await site.store.load(kept_run().id)).id == kept_run().id
    await page.get_by_role("button", name="Delete").click()
    await page.get_by_role("button", name="Delete for good").click()
    await page.get_by_text("There are no runs yet").wait_for()
    assert not await site.store.list()


def read(path: Path) -> str:
    return path.read_text("utf-8")


async def test_a_run_is_exported_as_it_is_kept(page: Page, site: Site) -> None:
    await site.keep(long_run(3))
    await page.goto(run_url(site, long_run(3)))
    async with page.expect_download() as begun:
        await page.get_by_role("link", name="Export as JSON").click()
    download = await begun.value
    assert download.suggested_filename == f"{kept_run().id}.json"
    kept = json.loads(read(await download.path()))
    assert load(kept) == await site.store.load(kept_run().id)


async def test_keys_alone_go_through_the_timeline_and_open_a_step(page: Page, site: Site) -> None:
    await site.keep(long_run(5))
    await page.goto(run_url(site, long_run(5)))
    await page.locator(".timeline-box").focus()
    await page.keyboard.press("Tab")
    for key in ("ArrowDown", "ArrowDown", "ArrowUp", "End", "ArrowUp"):
        await page.keyboard.press(key)
    await page.keyboard.press("Enter")
    await step(page, 3).get_by_text("prompt 3").wait_for()
    assert await page.evaluate("document.activeElement.closest('details').id") == "step-0-3"
    await page.keyboard.press("Enter")
    assert await step(page, 3).get_attribute("open") is None


async def test_five_hundred_steps_are_looked_at_without_a_halt(page: Page, site: Site) -> None:
    await site.store.finish(long_run(500))
    await page.goto(run_url(site, long_run(500)))
    await step(page, 499).wait_for()
    assert await page.locator(".timeline-row").count() == 500
    assert await page.locator(".matrix-picture").count() == 1
    clicks = {
        "a step in the list": "#step-0-{0} summary",
        "a row of the timeline": "[data-step='0.{0}']",
        "a step of the graph": ".graph-step[data-step='{0}']",
    }
    for number, (what, selector) in enumerate(clicks.items()):
        took = [
            await until_opened(page, selector.format(at), at)
            for at in (400 + 10 * number + item for item in range(TRIES))
        ]
        assert min(took) < WITHIN_MILLISECONDS, f"{what} took {took} ms"


async def test_lines_that_are_long_together_are_not_dashed(page: Page, site: Site) -> None:
    """Every dash of them would be drawn: half a second of it, before anything else is."""
    lines = "path => getComputedStyle(path).strokeDasharray"
    for steps, is_dashed in ((6, True), (500, False)):
        await site.store.finish(long_run(steps))
        await page.goto(run_url(site, long_run(steps)))
        await step(page, steps - 1).wait_for()
        implied = page.locator(".graph-implied")
        assert (await implied.get_attribute("d") or "").count("M") >= steps - 5
        assert (await implied.evaluate(lines) != "none") == is_dashed


async def until_opened(page: Page, selector: str, index: int) -> float:
    """Milliseconds from a click until the step is open and drawn; what it was sent comes then."""
    taken = await page.evaluate(
        """async ([selector, index]) => {
            const start = performance.now();
            const click = new MouseEvent('click', {bubbles: true});
            document.querySelector(selector).dispatchEvent(click);
            while (!document.querySelector(`#step-0-${index}[open] .step-body *`)) {
                if (performance.now() - start > 5000) break;
                await new Promise((resolve) => requestAnimationFrame(resolve));
            }
            await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
            return performance.now() - start;
        }""",
        [selector, index],
    )
    return float(taken)


async def test_at_380_pixels_the_page_does_not_scroll_sideways(page: Page, site: Site) -> None:
    await page.set_viewport_size({"width": 380, "height": 700})
    first = round_of(*(step_record(at, access="all") for at in range(12)))
    second = round_of(step_record(0, round_=1, access="all"), index=1)
    question = "Averyveryverylongwordwithoutanyspaces" * 8
    await site.keep(kept_run(rounds=(first, second), question=question, max_rounds=2))
    await page.goto(run_url(site, kept_run(), "?step=0.3"))
    await step(page, 3).get_by_text("prompt 3").wait_for()
    assert await page.evaluate("document.documentElement.scrollWidth") <= 380


async def test_a_drawing_takes_the_room_that_there_is(page: Page, site: Site) -> None:
    steps = [
        step_record(0),
        step_record(1, access=(0,)),
        step_record(2, access=(1,)),
    ]
    run = kept_run(1, rounds=(round_of(*steps),))
    await site.keep(run)
    await page.goto(site.url(f"/runs/{run.id}"))
    box, last = page.locator(".graph-box"), page.locator("[data-step='2']")
    await expect(last.locator("text").first).to_contain_text("part")
    await last.click()
    await page.set_viewport_size({"width": 380, "height": 800})
    await expect(last.locator("text").first).to_have_text("2")
    assert await box.evaluate("element => element.scrollWidth <= element.clientWidth")
    await expect(last).to_have_attribute("aria-pressed", "true")
    await expect(last).to_have_attribute("data-state", "done")
    await page.set_viewport_size({"width": 1280, "height": 900})
    await expect(last.locator("text").first).to_contain_text("part")
