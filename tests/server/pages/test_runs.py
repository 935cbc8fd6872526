"""The list of runs: looked for, paged through, watched, and gone through by keys alone."""

from __future__ import annotations

import asyncio
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from podium.server.access.keys import make_key
from podium.store.keys import Rules
from support.browsing import sign_in
from support.runs_on_record import kept_run, round_of, step_record
from support.site import Site

if TYPE_CHECKING:
    from playwright.async_api import Page, Route

    from server.pages.conftest import Clock, Watched

ROWS = ".run-table tbody tr"
LINKS = ".run-table tbody a"
NONE = "No run matches."
WITHIN_MILLISECONDS = 200
TRIES = 5
"""How often it is measured: the quickest counts, for whatever else a machine does is not ours."""


async def questions(page: Page) -> list[str]:
    return await page.locator(LINKS).all_inner_texts()


async def shows(page: Page, *wanted: str) -> None:
    """Wait until just these runs are listed."""
    await page.wait_for_function(
        "([rows, wanted]) => JSON.stringify([...document.querySelectorAll(rows)]"
        ".map((link) => link.textContent)) === wanted",
        arg=[LINKS, _json(wanted)],
    )


def _json(words: tuple[str, ...]) -> str:
    return "[" + ",".join(f'"{word}"' for word in words) + "]"


def query_of(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


async def test_runs_are_listed_newest_first_with_what_they_took(page: Page, site: Site) -> None:
    await site.keep(kept_run(0), kept_run(1, tier="mini"))
    await page.goto(site.url("/runs"))
    await shows(page, "Question 1?", "Question 0?")
    row = page.locator(ROWS).first
    text = await row.inner_text()
    for shown in ("Answer 1.", "answered", "podium-mini", "solver", "120", "$0.001"):
        assert shown in text


async def test_a_run_is_opened_by_its_row_and_the_way_back_leads_to_the_list(
    page: Page, site: Site
) -> None:
    await site.keep(kept_run(0), kept_run(1))
    await page.goto(site.url("/runs?text=question"))
    await page.locator(ROWS).nth(1).locator(".run-when").click()
    await page.get_by_role("heading", level=1, name="Question 0?").wait_for()
    assert urlsplit(page.url).path == f"/runs/{kept_run(0).id}"
    await page.go_back()
    await shows(page, "Question 1?", "Question 0?")
    assert await page.get_by_label("Search").input_value() == "question"


async def test_each_filter_is_in_the_address_and_a_link_shows_the_same(
    page: Page, site: Site
) -> None:
    checked = round_of(step_record(0), step_record(1, access=(0,)))
    dear = step_record(0)
    dear = replace(dear, attempts=(replace(dear.attempts[0], cost_usd=1.0),))
    # 2 March in Vienna, where this browser is, begins at 23:00 of the day before in UTC.
    await site.keep(
        kept_run(0),
        kept_run(1, answer="About bananas"),
        kept_run(2, status="failed", answer=None),
        kept_run(3, tier="mini"),
        kept_run(4, rounds=(checked,)),
        kept_run(5, rounds=(round_of(dear),)),
        kept_run(6, created_at="2026-03-01T23:30:00.000+00:00"),
        kept_run(7, owner="key_7"),
    )
    for query, number in (
        ("text=bananas", 1),
        ("status=failed", 2),
        ("tier=mini", 3),
        ("worker=checker", 4),
        ("cost_from=0.5&cost_to=2", 5),
        ("since=2026-03-02&until=2026-03-02", 6),
        ("owner=key_7", 7),
    ):
        await page.goto(site.url(f"/runs?{query}"))
        await shows(page, f"Question {number}?")
        for name, (value,) in parse_qs(query).items():
            assert await page.locator(f"#filter-{name}").input_value() == value


async def test_search_text_filters_and_back_undoes_it(page: Page, site: Site) -> None:
    await site.keep(kept_run(0), kept_run(1, question="About bananas"), kept_run(2, tier="mini"))
    await page.goto(site.url("/runs"))
    await page.get_by_label("Search").press_sequentially("banana", delay=5)
    await shows(page, "About bananas")
    assert query_of(page) == {"text": ["banana"]}
    await page.get_by_label("Search").fill("")
    await shows(page, "Question 2?", "About bananas", "Question 0?")
    await page.get_by_label("Tier").select_option("mini")
    await shows(page, "Question 2?")
    assert query_of(page) == {"tier": ["mini"]}
    await page.go_back()
    await shows(page, "Question 2?", "About bananas", "Question 0?")
    assert await page.get_by_label("Tier").input_value() == ""


async def test_one_click_clears_filters_without_matches(page: Page, site: Site) -> None:
    await site.keep(kept_run(0))
    await page.goto(site.url("/runs?status=waiting&text=nowhere"))
    await page.get_by_text("No run matches").wait_for()
    await page.get_by_role("button", name="Show all runs").click()
    await shows(page, "Question 0?")
    assert urlsplit(page.url).query == ""
    assert await page.get_by_label("Search").input_value() == ""


async def test_without_any_run_the_page_says_where_to_ask(page: Page, site: Site) -> None:
    await page.goto(site.url("/runs"))
    await page.get_by_text("There are no runs yet").wait_for()
    chat = page.get_by_role("main").get_by_role("link", name="chat")
    assert await chat.get_attribute("href") == "/"


async def test_an_address_that_makes_no_sense_says_so_and_how_to_go_on(
    page: Page, site: Site, watched: Watched
) -> None:
    watched.allow("400", "cannot be parsed")
    await site.keep(kept_run(0))
    await page.goto(site.url("/runs?cost_from=much"))
    await page.get_by_role("alert").get_by_text("cost_from").wait_for()
    await page.get_by_role("button", name="Show all runs").click()
    await shows(page, "Question 0?")


async def test_a_run_in_progress_is_updated_in_its_row(
    page: Page, site: Site, clock: Clock
) -> None:
    going = kept_run(1, status="running", answer=None, rounds=(), process="elsewhere:1")
    await site.keep(kept_run(0), going)
    await page.goto(site.url("/runs"))
    row = page.locator(ROWS).first
    await row.get_by_text("running").wait_for()
    await row.locator("a").focus()
    await site.store.finish(kept_run(1))
    await clock.run_for(2_500)
    await row.get_by_text("answered").wait_for()
    assert "$0.001" in await row.inner_text()
    assert await row.locator("a").evaluate("link => link === document.activeElement")


async def test_a_run_that_ends_is_updated_though_it_is_no_longer_looked_for(
    page: Page, site: Site, clock: Clock
) -> None:
    await site.keep(kept_run(1, status="running", answer=None, rounds=(), process="elsewhere:1"))
    await page.goto(site.url("/runs?status=running"))
    await page.locator(ROWS).get_by_text("running").wait_for()
    await site.store.finish(kept_run(1))
    await clock.run_for(2_500)
    await page.locator(ROWS).get_by_text("answered").wait_for()


async def test_new_runs_are_announced_and_shown_when_asked_for(
    page: Page, site: Site, clock: Clock
) -> None:
    await site.keep(kept_run(0))
    await page.goto(site.url("/runs"))
    await shows(page, "Question 0?")
    await site.keep(kept_run(1))
    await clock.run_for(11_000)
    await page.get_by_role("button", name="new runs").click()
    await shows(page, "Question 1?", "Question 0?")


async def test_late_runs_outside_the_filter_announce_nothing(
    page: Page, site: Site, clock: Clock
) -> None:
    await site.keep(kept_run(0), kept_run(1, tier="mini"))
    await page.goto(site.url("/runs"))
    await shows(page, "Question 1?", "Question 0?")
    late: asyncio.Queue[Route] = asyncio.Queue()
    await page.route(
        lambda url: url.endswith("/v1/runs?limit=50"), lambda route: late.put_nowait(route)
    )
    await clock.run_for(11_000)
    async with asyncio.timeout(10):
        route = await late.get()
    await page.locator("#filter-tier").select_option("mini")
    await shows(page, "Question 1?")
    await route.continue_()
    for _ in range(3):  # what is asked after it is answered after it
        await page.evaluate("fetch('/v1/models').then((response) => response.text())")
    assert await page.get_by_role("button", name="new runs").count() == 0
    assert not await page.locator(".notice").is_visible()


async def test_a_server_that_goes_away_is_reported_and_what_is_shown_stays(
    page: Page, site: Site, watched: Watched, clock: Clock
) -> None:
    watched.allow("ERR_")
    await site.keep(kept_run(0))
    await page.goto(site.url("/runs"))
    await shows(page, "Question 0?")
    await page.route("**/v1/runs?*", lambda route: route.abort())
    await clock.run_for(11_000)
    await page.get_by_text("The server cannot be reached").wait_for()
    await shows(page, "Question 0?")
    await page.unroute("**/v1/runs?*")
    await clock.run_for(11_000)
    await page.get_by_text("The server cannot be reached").wait_for(state="hidden")


async def test_keys_alone_search_go_through_the_runs_and_open_one(page: Page, site: Site) -> None:
    await site.keep(*(kept_run(number) for number in range(4)))
    await page.goto(site.url("/runs"))
    await shows(page, *(f"Question {number}?" for number in (3, 2, 1, 0)))
    await page.keyboard.press("/")
    assert await page.evaluate("document.activeElement.id") == "filter-text"
    for _ in range(20):
        await page.keyboard.press("Tab")
        if await page.evaluate("document.activeElement.closest('tbody') !== null"):
            break
    for key, expected in (("ArrowDown", 2), ("End", 0), ("ArrowUp", 1), ("Home", 3)):
        await page.keyboard.press(key)
        focused = await page.evaluate("document.activeElement.textContent")
        assert focused == f"Question {expected}?"
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await page.get_by_role("heading", level=1, name="Question 2?").wait_for()


async def test_five_thousand_runs_are_searched_and_paged_through_without_a_halt(
    page: Page, site: Site
) -> None:
    await site.store.finish(*(kept_run(number) for number in range(5_000)))
    await page.goto(site.url("/runs"))
    await page.get_by_text("Question 4999?").wait_for()
    assert await page.locator(ROWS).count() == 50
    took: dict[str, list[float]] = {"a page on": [], "a search": [], "a filter": []}
    for _ in range(TRIES):
        await page.goto(site.url("/runs"))
        await page.get_by_text("Question 4999?").wait_for()
        took["a page on"].append(await timed(page, LINKS, "Question 4949?", click="a[rel=next]"))
        took["a search"].append(await timed(page, LINKS, "Question 1234?", text="1234"))
        took["a filter"].append(await timed(page, ".state-words", NONE, choose="failed"))
    slow = {what: item for what, item in took.items() if min(item) > WITHIN_MILLISECONDS}
    assert not slow, f"took longer than {WITHIN_MILLISECONDS} ms: {slow}"


async def timed(
    page: Page, selector: str, words: str, *, click: str = "", text: str = "", choose: str = ""
) -> float:
    """Milliseconds from doing something until the first of what is selected says these words;
    without the debounce of typing."""
    taken = await page.evaluate(
        """async ([selector, words, click, text, choose]) => {
            const field = document.querySelector(text ? '#filter-text' : '#filter-status');
            const start = performance.now();
            if (click) document.querySelector(click).click();
            else {
                field.value = text || choose;
                field.dispatchEvent(new Event('input', {bubbles: true}));
            }
            while (document.querySelector(selector)?.textContent !== words) {
                if (performance.now() - start > 5000) break;
                await new Promise((resolve) => requestAnimationFrame(resolve));
            }
            return performance.now() - start - (text ? 250 : 0);
        }""",
        [selector, words, click, text, choose],
    )
    return float(taken)


async def test_older_runs_have_an_address_of_their_own(page: Page, site: Site) -> None:
    await site.store.finish(*(kept_run(number) for number in range(60)))
    await page.goto(site.url("/runs?text=question"))
    await page.get_by_role("link", name="Older runs").click()
    await page.get_by_text("Question 9?").wait_for()
    assert await page.locator(ROWS).count() == 10
    await page.reload()
    await page.get_by_text("Question 9?").wait_for()
    await page.get_by_role("link", name="Newest").click()
    await page.get_by_text("Question 59?").wait_for()
    assert query_of(page) == {"text": ["question"]}


async def test_at_380_pixels_nothing_is_cut_off_and_filters_are_behind_a_click(
    page: Page, site: Site
) -> None:
    await page.set_viewport_size({"width": 380, "height": 700})
    await site.keep(kept_run(0, question="A rather long question " * 6))
    await page.goto(site.url("/runs"))
    await page.locator(ROWS).first.wait_for()
    assert not await page.get_by_label("Status").is_visible()
    await page.get_by_text("More filters").click()
    await page.get_by_label("Status").select_option("answered")
    await page.wait_for_function("() => location.search === '?status=answered'")
    assert await page.evaluate("document.documentElement.scrollWidth") <= 380


async def test_with_keys_runs_show_their_key_and_are_found_by_it(
    page: Page, site_with_keys: Site, watched: Watched
) -> None:
    watched.allow("401")
    adas = f"key_{site_with_keys.token.split('_')[1]}"
    await site_with_keys.keep(kept_run(0, owner=adas), kept_run(1, owner="key_b"))
    await page.goto(site_with_keys.url("/runs"))
    await sign_in(page, site_with_keys.token)
    await shows(page, "Question 1?", "Question 0?")
    assert "Ada" in await page.locator(ROWS).nth(1).inner_text()
    assert "key_b" in await page.locator(ROWS).first.inner_text()
    await page.get_by_label("Key").fill("key_b")
    await shows(page, "Question 1?")
    await page.goto(site_with_keys.url(f"/runs/{kept_run(0).id}"))
    await page.locator(".facts").get_by_role("link", name="Ada").click()
    await shows(page, "Question 0?")
    assert query_of(page) == {"owner": [adas]}


async def test_a_run_of_which_nothing_was_heard_for_long_is_shown_as_interrupted(
    page: Page, site: Site, tmp_path: Path
) -> None:
    await site.keep(kept_run(0, status="running", answer=None, rounds=(), process="elsewhere:1"))
    with sqlite3.connect(tmp_path / "runs.db") as database:
        database.execute("UPDATE runs SET updated_at = created_at")
    database.close()
    await page.goto(site.url("/runs"))
    await page.locator(ROWS).get_by_text("interrupted").wait_for()


async def test_a_key_without_runs_shows_that_it_has_none(
    page: Page, site_with_keys: Site, watched: Watched
) -> None:
    watched.allow("401")
    reader = make_key("Reader", Rules(scopes=frozenset({"runs:read"})))
    await site_with_keys.store.keys.add(reader.key)
    await site_with_keys.ask("Why?")
    await page.goto(site_with_keys.url("/runs"))
    await sign_in(page, reader.token)
    await page.get_by_text("None was asked with the key Reader.").wait_for()


async def test_a_key_is_found_by_its_name_and_a_worker_by_a_part_of_its_name(
    page: Page, site_with_keys: Site, watched: Watched
) -> None:
    watched.allow("401")
    checked = round_of(step_record(0), step_record(1, access=(0,)))
    await site_with_keys.keep(kept_run(0), kept_run(1, rounds=(checked,)))
    await site_with_keys.ask("Why?")
    await page.goto(site_with_keys.url("/runs"))
    await sign_in(page, site_with_keys.token)
    await shows(page, "Why?", "Question 1?", "Question 0?")
    await page.locator("#filter-owner").fill("Ada")
    await shows(page, "Why?")
    await page.locator("#filter-owner").fill("")
    await page.locator("#filter-text").fill("Question")
    await page.locator("#filter-worker").fill("CHECK")
    await shows(page, "Question 1?")
    await page.locator("#filter-worker").fill("nobody")
    await page.get_by_text("Give the whole name of a worker").wait_for()


async def test_every_key_that_may_be_looked_for_is_offered_by_its_name(
    page: Page, site_with_keys: Site, watched: Watched
) -> None:
    watched.allow("401")
    bob = make_key("Bob", Rules())
    await site_with_keys.store.keys.add(bob.key)
    runs = [kept_run(0, owner=bob.key.id), *(kept_run(number) for number in range(1, 60))]
    await site_with_keys.store.finish(*runs)
    await page.goto(site_with_keys.url("/runs"))
    await sign_in(page, site_with_keys.token)
    await page.locator("#known-owners option[label=Bob]").wait_for(state="attached")
    await page.locator("#filter-owner").fill("Bob")
    await shows(page, "Question 0?")
    await page.reload()
    await shows(page, "Question 0?")


async def test_days_are_shown_whole(page: Page, site: Site) -> None:
    await page.goto(site.url("/runs"))
    day = page.locator("#filter-since")
    await day.wait_for()
    assert await day.evaluate("element => element.clientWidth") >= 130
    tops = "all => all.map((element) => Math.round(element.getBoundingClientRect().top))"
    names = page.locator(".run-filters legend")
    assert len(set(await names.evaluate_all(tops))) == 1
