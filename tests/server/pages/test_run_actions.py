"""What is done with runs on their pages: select, compare, export, retry, go on in the chat."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from podium.conductors import FixedConductor
from podium.core.errors import Unavailable
from podium.core.request import Message, Request, Text
from podium.core.workflow import Step, Workflow
from podium.workers import ScriptedWorker
from support.browsing import content
from support.runs_on_record import kept_run, round_of, step_record
from support.site import Site

playwright = pytest.importorskip("playwright.async_api")
expect = playwright.expect

if TYPE_CHECKING:
    from playwright.async_api import Page

    from server.pages.conftest import Serve

PLAN = Workflow((Step("solver", "Draft it"), Step("checker", "Check it", (0,))))


async def test_selected_runs_are_exported(page: Page, site: Site) -> None:
    await site.keep(*(kept_run(number) for number in range(3)))
    await page.goto(site.url("/runs"))
    await page.get_by_label("Select: Question 2?").check()
    await expect(page.get_by_role("button", name="Compare")).to_be_disabled()
    await page.get_by_label("Select: Question 0?").check()
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Export as JSON").click()
    exported = json.loads(await content(await download.value))
    assert [run["question"] for run in exported] == ["Question 2?", "Question 0?"]
    await page.get_by_role("button", name="Clear selection").click()
    await expect(page.get_by_label("Select: Question 2?")).not_to_be_checked()
    await expect(page.get_by_role("group", name="Selected runs")).to_be_hidden()


async def test_two_runs_are_compared_side_by_side(page: Page, site: Site) -> None:
    other = round_of(step_record(0), step_record(1, access=(0,)))
    await site.keep(
        kept_run(0, question="Why?", answer="It is blue."),
        kept_run(1, question="Why?", answer="It is grey.", rounds=(other,)),
    )
    await page.goto(site.url("/runs"))
    for at in (0, 1):
        await page.get_by_label("Select: Why?").nth(at).check()
    await page.get_by_role("button", name="Compare").click()
    await page.wait_for_url("**/runs/compare?run=*")
    await page.get_by_text("Differences word by word").click()
    await expect(page.locator("del")).to_have_text("grey.")
    await expect(page.locator("ins")).to_have_text("blue.")
    longer = page.get_by_role("article", name=f"Step 1 of {kept_run(1).id}")
    await longer.get_by_text("Prompt").click()
    await expect(longer).to_contain_text("prompt 1")
    await expect(page.get_by_text("no such step")).to_have_count(1)
    await page.set_viewport_size({"width": 380, "height": 800})
    assert await page.evaluate("document.documentElement.scrollWidth") <= 380


async def test_previews_are_plain_text(page: Page, site: Site) -> None:
    written = "# Yes\n\n- **bold**, *soft* and `code`, see [there](https://x.example), snake_case"
    written += "\n\n| a | b |\n|---|:-:|\n| tea | 1 |\n\n```python\nprint(1)\n```\n---"
    await site.keep(kept_run(0, question="**Which** `one`?", answer=written))
    await page.goto(site.url("/runs"))
    await expect(page.locator(".run-question a")).to_have_text("Which one?")
    preview = page.locator(".run-question p")
    plain = "Yes bold, soft and code, see there, snake_case a b tea 1 print(1)"
    await expect(preview).to_have_text(plain)


async def test_tiny_costs_are_short(page: Page, site: Site) -> None:
    cheap = step_record(0)
    cheap = replace(cheap, attempts=(replace(cheap.attempts[0], cost_usd=0.0000015),))
    await site.keep(kept_run(0, rounds=(round_of(cheap),)))
    await page.goto(site.url("/runs"))
    cost = page.locator("td.run-cost")
    await expect(cost).to_have_text("< $0.0001")
    await expect(cost.get_by_title("$0.0000015")).to_be_visible()


async def test_a_failed_run_is_retried_and_keeps_what_is_done(page: Page, serve: Serve) -> None:
    asked: list[str] = []
    away = [Unavailable("overloaded")] * 8

    def check(request: Request) -> str | Unavailable:
        return away.pop() if away else "Correct."

    def solve(request: Request) -> str:
        asked.append(request.text)
        return "42"

    workers = [ScriptedWorker("solver", solve), ScriptedWorker("checker", check)]
    async with serve(workers, conductor=FixedConductor(PLAN)) as site:
        run_id = await site.ask("Why?")
        away.clear()
        await page.goto(site.url(f"/runs/{run_id}"))
        await page.get_by_role("button", name="Retry", exact=True).click()
        await page.wait_for_function("(id) => !location.pathname.endsWith(id)", arg=run_id)
        await expect(page.locator(".run-answer")).to_contain_text("Correct.")
        assert len(asked) == 1


async def test_a_run_is_retried_from_a_step(page: Page, serve: Serve) -> None:
    asked: list[str] = []

    def solve(request: Request) -> str:
        asked.append(request.text)
        return "42"

    def check(request: Request) -> str:
        return f"Checked after {len(asked)}"

    workers = [ScriptedWorker("solver", solve), ScriptedWorker("checker", check)]
    async with serve(workers, conductor=FixedConductor(PLAN)) as site:
        run_id = await site.ask("Why?")
        for step, times in ((1, 1), (0, 2)):
            await page.goto(site.url(f"/runs/{run_id}?step=0.{step}"))
            await page.get_by_role("button", name="Retry from here").click()
            await page.wait_for_function("(id) => !location.pathname.endsWith(id)", arg=run_id)
            await expect(page.locator(".run-answer")).to_contain_text(f"Checked after {times}")
            assert len(asked) == times


async def test_one_step_has_no_access_matrix(page: Page, site: Site) -> None:
    await site.keep(kept_run(0, rounds=(round_of(step_record(0)),)))
    await page.goto(site.url(f"/runs/{kept_run(0).id}"))
    await expect(page.get_by_role("heading", name="Steps (1)")).to_be_visible()
    await expect(page.get_by_role("heading", name="Access")).to_have_count(0)


async def test_a_run_opens_in_the_chat_with_its_history(page: Page, serve: Serve) -> None:
    said: list[str] = []

    def answer(request: Request) -> str:
        said.append(request.text)
        return "You are Ada."

    async with serve([ScriptedWorker("solver", answer)]) as site:
        history = (Message("user", (Text("I am Ada."),)), Message("assistant", (Text("Hello."),)))
        run = kept_run(0, question="Who am I?", answer="Ada.", history=history)
        await site.keep(run)
        await page.goto(site.url(f"/runs/{run.id}"))
        await page.get_by_role("link", name="Open in chat").click()
        await expect(page.locator(".turn")).to_have_count(2)
        await page.get_by_label("Message").fill("Really?")
        await page.get_by_role("button", name="Send", exact=True).click()
        await expect(page.locator(".turn")).to_have_count(3)
        await page.get_by_text("You are Ada.").wait_for()
        for words in ("I am Ada.", "Who am I?", "Really?"):
            assert words in said[-1]
        await page.wait_for_url("**/?chat=*")
