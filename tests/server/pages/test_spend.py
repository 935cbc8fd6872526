"""The page Spend: sums that add up, by whichever way one looks, in an address that can be kept."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from podium.core.request import Price
from podium.core.run import Run, Tier, timestamp
from podium.core.workflow import Step
from podium.server.access.keys import make_key
from podium.store.keys import Allowance, KeyUsage, Rules
from podium.workers import ScriptedWorker
from support.browsing import content, sign_in
from support.runs_on_record import attempt, run_with_calls
from support.site import Site

playwright = pytest.importorskip("playwright.async_api")
expect = playwright.expect

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

    from server.pages.conftest import Clock, Serve, Watched

SOLVE = Step("solver", "Solve the riddle.", ())
MARCH = "from=2026-03-01&to=2026-03-31"


def spent(
    number: int, cost: float | None, tier: Tier = "ultra", created_at: str | None = None
) -> Run:
    return run_with_calls(
        f"run_{number:016x}",
        (SOLVE, (attempt("solver", cost=cost),)),
        tier=tier,
        created_at=created_at or "2026-03-04T12:00:00.000+00:00",
    )


def line(page: Page, name: str) -> Locator:
    return page.get_by_role("region", name="Spend by").get_by_role("row", name=name)


async def test_sums_add_up_and_the_unknown_is_distinguished(site: Site, page: Page) -> None:
    await site.store.finish(spent(1, 1.5), spent(2, 0.25, "mini"), spent(3, None))
    await page.goto(site.url(f"/spend?by=tier&{MARCH}"))
    await expect(line(page, "podium-ultra")).to_contain_text("$1.50")
    await expect(line(page, "podium-mini")).to_contain_text("$0.25")
    await expect(line(page, "Total")).to_contain_text("$1.75")
    await expect(page.get_by_text("The cost of 1 request is not fully known")).to_be_visible()
    bar = page.locator(".chart-bar", has_text="2026-03-04: $1.75")
    assert await bar.locator(".chart-part").count() == 2
    await page.get_by_text("Numbers").click()
    numbers = page.get_by_role("region", name="Numbers of Dollars by day")
    await expect(numbers.get_by_role("row", name="2026-03-04")).to_contain_text("$1.50")


async def test_no_value_beside_the_bars_is_cut_off(site: Site, page: Page) -> None:
    await site.store.finish(spent(1, 0.00023))
    await page.goto(site.url(f"/spend?by=tier&{MARCH}"))
    beside = page.locator(".chart-grid text")
    await expect(beside.last).to_have_text("$0.00025")
    places = await beside.evaluate_all("all => all.map(each => each.getBBox().x)")
    assert min(places) >= 0


async def test_the_ways_to_look_are_links_and_back_leads_back(site: Site, page: Page) -> None:
    await site.store.finish(spent(1, 1.5))
    await page.goto(site.url(f"/spend?by=tier&{MARCH}"))
    await page.get_by_role("link", name="Worker", exact=True).click()
    await page.wait_for_url(f"**/spend?by=worker&{MARCH}")
    await expect(line(page, "solver")).to_contain_text("$1.50")
    await page.get_by_role("link", name="Day").click()
    await expect(line(page, "2026-03-04")).to_contain_text("$1.50")
    await page.go_back()
    await expect(line(page, "solver")).to_be_visible()
    await page.go_back()
    await expect(line(page, "podium-ultra")).to_be_visible()


async def test_the_range_is_chosen_and_stands_in_the_address(site: Site, page: Page) -> None:
    await site.store.finish(spent(1, 1.5), spent(2, 0.25, created_at=timestamp()))
    await page.goto(site.url("/spend"))
    await expect(line(page, "Total")).to_contain_text("$0.25")
    await page.get_by_label("From").fill("2026-03-01")
    await page.get_by_label("To", exact=True).fill("2026-03-31")
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**/spend?by=tier&{MARCH}")
    await expect(line(page, "Total")).to_contain_text("$1.50")
    await page.go_back()
    await expect(line(page, "Total")).to_contain_text("$0.25")
    await page.get_by_role("button", name="7 days").click()
    today = datetime.now(UTC).date().isoformat()
    await page.wait_for_url(f"**to={today}")


async def test_concurrent_spending_is_added(site: Site, page: Page, clock: Clock) -> None:
    await page.goto(site.url("/spend"))
    await expect(page.get_by_text("Nothing was spent on these days.")).to_be_visible()
    await site.store.finish(spent(1, 0.25, created_at=timestamp()))
    await clock.run_for(11_000)
    await expect(line(page, "Total")).to_contain_text("$0.25")
    await page.get_by_text("Numbers").click()
    await site.store.finish(spent(2, 0.5, created_at=timestamp()))
    await clock.run_for(11_000)
    await expect(line(page, "Total")).to_contain_text("$0.75")
    await expect(page.get_by_role("region", name="Numbers of Dollars")).to_be_visible()


async def test_days_without_spending_say_so(site: Site, page: Page) -> None:
    await page.goto(site.url(f"/spend?{MARCH}"))
    await expect(page.get_by_text("Nothing was spent on these days.")).to_be_visible()


async def test_a_range_that_cannot_be_is_reported_with_the_reason(
    site: Site, page: Page, watched: Watched
) -> None:
    watched.allow("Failed to load resource")
    await page.goto(site.url("/spend?from=2026-03-31&to=2026-03-01"))
    await expect(page.get_by_role("alert")).to_contain_text(
        "from (2026-03-31) is after to (2026-03-01)"
    )
    await page.get_by_label("From").fill("2026-02-01")
    await page.get_by_role("button", name="Show").click()
    await expect(page.get_by_text("Nothing was spent on these days.")).to_be_visible()


async def test_keys_have_names_and_what_runs_do_not_tell_has_a_line(
    site_with_keys: Site, page: Page
) -> None:
    keys = site_with_keys.store.keys
    made = make_key("<b>Bob</b>", Rules())
    await keys.add(made.key)
    day = "2026-03-04"
    await keys.quotas.record(
        [KeyUsage(key_id=made.key.id, day=day, model="podium-ultra", requests=2, cost_usd=4.0)]
    )
    await site_with_keys.store.finish(spent(1, 1.5))
    await page.goto(site_with_keys.url(f"/spend?by=key&{MARCH}"))
    await sign_in(page, site_with_keys.token)
    await expect(line(page, "<b>Bob</b>")).to_contain_text("$4.00")
    await expect(line(page, "without a key")).to_contain_text("$1.50")
    await page.get_by_role("link", name="Worker", exact=True).click()
    await expect(line(page, "not in runs on record")).to_contain_text("$4.00")
    await expect(line(page, "Total")).to_contain_text("$5.50")


async def test_a_small_window_does_not_scroll_sideways(site: Site, page: Page) -> None:
    await page.set_viewport_size({"width": 380, "height": 800})
    await site.store.finish(spent(1, 1.5))
    await page.goto(site.url(f"/spend?by=worker&{MARCH}"))
    await expect(line(page, "solver")).to_be_visible()
    drawing = await page.locator(".chart svg[role=img]").bounding_box()
    assert drawing is not None
    assert drawing["width"] <= 380
    assert await page.evaluate("document.documentElement.scrollWidth") <= 380


async def test_a_year_of_days_is_drawn_at_once(site: Site, page: Page) -> None:
    await site.store.finish(*(spent(n, 0.01) for n in range(1, 400)))
    await page.goto(site.url("/spend?from=2025-06-01&to=2026-05-31&by=worker"))
    await expect(line(page, "solver")).to_contain_text("399")
    await expect(page.locator(".chart-bar")).to_have_count(365)


async def test_free_usage_shows_no_chart(page: Page, serve: Serve) -> None:
    free = ScriptedWorker("free", "Yes.", price=Price(input=0.0, output=0.0))
    async with serve([free]) as site:
        await site.ask("Is it free?", model="podium-mini")
        await page.set_viewport_size({"width": 380, "height": 800})
        await page.goto(site.url("/spend"))
        await expect(page.get_by_text("Nothing was spent: all was free.")).to_be_visible()
        await expect(page.locator(".chart-place")).to_have_count(0)
        spent = page.get_by_role("columnheader", name="Spent")
        assert await spent.evaluate("element => element.getBoundingClientRect().right < innerWidth")


async def test_spending_downloads_as_csv(site: Site, page: Page) -> None:
    await site.store.finish(spent(1, 1.5), spent(2, 0.25, "mini"))
    await page.goto(site.url(f"/spend?by=tier&{MARCH}"))
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Download CSV").click()
    saved = await download.value
    assert saved.suggested_filename == "spend-2026-03-01-2026-03-31-by-tier.csv"
    lines = [line.split(",") for line in (await content(saved)).splitlines()]
    assert lines[0][:4] == ["tier", "day", "cost_usd", "requests"]
    assert [line[:4] for line in lines[1:]] == [
        ["ultra", "2026-03-04", "1.5", "1"],
        ["mini", "2026-03-04", "0.25", "1"],
    ]


async def test_a_spreadsheet_runs_nothing_of_it(on_a_page: Page) -> None:
    made = await on_a_page.evaluate(
        """async (name) => {
            const { csv } = await import('/static/parts/spend-extras.js');
            const day = { day: '2026-03-04', cost_usd: -1, requests: 1, calls: null };
            return csv({ by: 'key', groups: [{ name, days: [day] }] });
        }""",
        '=HYPERLINK("https://x.example")',
    )
    assert made.splitlines()[1] == '"\'=HYPERLINK(""https://x.example"")",2026-03-04,-1,1,,,'


async def test_the_month_is_forecast_from_the_days_before(on_a_page: Page) -> None:
    made = await on_a_page.evaluate(
        """async () => {
            const { forecast } = await import('/static/parts/forecast.js');
            const spent = [['02-20', 99], ['02-26', 8], ['03-01', 2], ['03-04', 1]];
            const days = spent.map(([day, cost]) => ({ day: `2026-${day}`, cost_usd: cost }));
            return [forecast('2026-03-04', days), forecast('2026-03-04', days.slice(-1))];
        }"""
    )
    # From 26 February, the first of the seven days before that has any, to 3 March: six days.
    assert made[0] == {"sofar": 3, "daily": 10 / 6, "left": 27, "total": 48, "days": 6}
    assert made[1] == {"sofar": 1, "daily": 1, "left": 27, "total": 28, "days": 0}


async def test_caps_are_bars_and_the_best_worker_alone_is_compared(site: Site, page: Page) -> None:
    made = make_key("laptop", Rules(per_month=Allowance(usd=2.0)))
    await site.store.keys.add(made.key)
    used = KeyUsage(key_id=made.key.id, day=timestamp()[:10], model="podium", cost_usd=0.5)
    await site.store.keys.quotas.record([used])
    run = spent(1, 0.001, created_at=timestamp())
    await site.store.finish(replace(run, answer=run.steps[-1].reply))
    await page.goto(site.url("/spend"))
    beside = page.locator(".spend-extras")
    await expect(beside).to_contain_text("laptop: $0.50 of $2.00 this month")
    await expect(beside.get_by_role("heading", name="Against always solver")).to_be_visible()
    await expect(beside).to_contain_text("Spent more")
    await expect(beside).to_contain_text("Forecast")
