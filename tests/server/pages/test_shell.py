"""The frame around the pages: addresses, navigation, light and dark, small windows, keyboard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from support.browsing import SHIFTS, shown
from support.runs_on_record import kept_run
from support.site import Site
from support.wire import wire_to

playwright = pytest.importorskip("playwright.async_api")
expect = playwright.expect

if TYPE_CHECKING:
    from playwright.async_api import Page

    from server.pages.conftest import Watched

PAGES: Final = {
    "/": "Chat",
    "/runs": "Runs",
    "/pool": "Workers",
    "/keys": "Keys",
    "/spend": "Spend",
    "/experiments": "Experiments",
}


async def test_every_page_has_an_address_of_its_own(page: Page, site: Site) -> None:
    for path, title in PAGES.items():
        await page.goto(site.url(path))
        await page.get_by_role("heading", level=1).first.wait_for()
        assert await page.title() == f"{title} · Podium"
        assert await page.locator("nav [aria-current=page]").inner_text() == title


async def test_links_change_the_page_in_place_and_back_leads_back(page: Page, site: Site) -> None:
    await page.goto(site.url("/runs"))
    await page.get_by_role("heading", level=1).first.wait_for()
    await page.evaluate("window.kept = true")
    await page.get_by_role("link", name="Workers", exact=True).click()
    await page.wait_for_url("**/pool")
    await expect(page).to_have_title("Workers · Podium")
    assert await page.evaluate("document.activeElement.id") == "page"
    await expect(page.locator("#announcements")).to_have_text("Workers")
    await page.go_back()
    await expect(page).to_have_title("Runs · Podium")
    await page.go_forward()
    await expect(page).to_have_title("Workers · Podium")
    assert await page.evaluate("window.kept"), "the page was never loaded anew"


async def test_a_page_is_stopped_when_it_is_left(page: Page, site: Site) -> None:
    held: list[str] = []
    await page.route("**/openapi.json", lambda route: held.append(route.request.url))
    async with page.expect_request("**/openapi.json"):
        await page.goto(site.url("/docs"))
    async with page.expect_event("requestfailed") as cut:
        await page.get_by_role("link", name="Runs", exact=True).click()
    assert [(await cut.value).url] == held == [site.url("/openapi.json")]
    await expect(page).to_have_title("Runs · Podium")


async def test_an_error_says_what_happened_and_how_to_go_on(
    page: Page, site: Site, watched: Watched
) -> None:
    watched.allow("500", "ERR_FAILED", "Failed to load resource")
    await page.route("**/openapi.json", lambda route: route.abort())
    await page.goto(site.url("/docs"))
    alert = page.get_by_role("alert")
    await alert.get_by_text("The server cannot be reached.").wait_for()
    await page.unroute("**/openapi.json")
    body = '{"error": {"message": "the disk is full"}}'
    await page.route("**/openapi.json", lambda route: route.fulfill(status=500, body=body))
    await alert.get_by_role("button", name="Try again").click()
    await alert.get_by_text("the disk is full").wait_for()
    await page.unroute("**/openapi.json")
    await alert.get_by_role("button", name="Try again").click()
    await page.get_by_text("/v1/chat/completions", exact=True).wait_for()


async def test_a_page_that_cannot_be_loaded_asks_whether_the_server_runs(
    page: Page, site: Site, watched: Watched
) -> None:
    watched.allow("ERR_", "Failed to load resource")
    async with wire_to(site.address) as wire:
        watched.origins.add(f"{wire.address}/")
        await page.goto(f"{wire.address}/runs")
        await page.get_by_role("heading", level=1).first.wait_for()
        wire.cut()
        await page.get_by_role("link", name="Spend", exact=True).click()
        alert = page.locator(".state-failure")
        await alert.get_by_text("Is podium serve still running?").wait_for()
        await alert.get_by_role("button", name="Try again").click()
        await alert.get_by_text("Is podium serve still running?").wait_for()
        wire.mend()
        await alert.get_by_role("button", name="Try again").click()
        await page.get_by_role("heading", level=1, name="Spend").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_light_or_dark_is_the_systems_until_the_reader_chooses(
    page: Page, site: Site, scheme: str
) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    await page.goto(site.url("/runs"))
    before = await page.evaluate(paper)
    other = "light" if scheme == "dark" else "dark"
    await page.get_by_role("button", name=f"Switch to {other}").click()
    after = await page.evaluate(paper)
    assert (before == "rgb(255, 255, 255)") == (scheme == "light")
    assert after != before
    await page.reload()
    assert await page.evaluate(paper) == after


async def test_no_page_moves_while_it_loads(page: Page, site: Site, fresh_profile: None) -> None:
    await site.keep(kept_run())  # without mathematics, which is loaded when it is met
    await page.add_init_script(SHIFTS)
    for path in (*PAGES, f"/runs/{kept_run().id}", "/docs"):
        await page.goto(site.url(path))
        await shown(page)
        await page.wait_for_load_state("networkidle")
        assert await page.evaluate("window.shifted") < 0.01, path


async def test_no_page_is_wider_than_a_small_window(page: Page, site: Site) -> None:
    await site.ask("Compare two proofs that there are infinitely many primes, at some length!")
    await page.set_viewport_size({"width": 380, "height": 800})
    for path in (*PAGES, "/docs"):
        await page.goto(site.url(path))
        await shown(page)
        assert await page.evaluate("document.documentElement.scrollWidth") <= 380, path


async def test_the_keyboard_reaches_the_page_past_the_navigation(page: Page, site: Site) -> None:
    await page.goto(site.url("/runs"))
    await page.get_by_role("heading", level=1).first.wait_for()
    await page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the page")
    assert await skip.evaluate("element => element === document.activeElement")
    assert await skip.evaluate("element => getComputedStyle(element).outlineStyle") == "solid"
    await page.keyboard.press("Enter")
    assert await page.evaluate("document.activeElement.id") == "page"


async def test_an_address_that_is_no_page_is_not_served(
    site: Site, page: Page, watched: Watched
) -> None:
    watched.allow("404")
    answer = await page.goto(site.url("/nowhere"))
    assert answer is not None
    assert answer.status == 404
    await expect(page.get_by_text("Page not found: /nowhere")).to_be_visible()
    await expect(page.get_by_role("button", name="Try again")).to_have_count(0)
    await page.get_by_role("link", name="Go to the start page").click()
    await expect(page.get_by_label("Message")).to_be_visible()


async def test_the_api_begins_with_what_most_come_for_and_shows_no_raw_marks(
    page: Page, site: Site
) -> None:
    await page.goto(site.url("/docs"))
    await page.get_by_role("heading", level=2).first.wait_for()
    groups = await page.get_by_role("heading", level=2).all_inner_texts()
    assert groups[:3] == ["Chat", "Responses", "Messages"]
    assert len(set(groups)) == len(groups)
    assert "`" not in (await page.locator("#page").text_content() or "")


async def test_an_endpoint_has_examples_with_this_address_and_is_tried(
    page: Page, site: Site
) -> None:
    await page.goto(site.url("/docs"))
    chat = page.locator("#post--v1-chat-completions")
    await chat.locator("summary").first.click()
    for name in ("curl", "Python", "JavaScript"):
        await chat.get_by_text(name, exact=True).click()
        text = await chat.get_by_label(f"{name} example").inner_text()
        assert site.url("/v1/chat/completions") in text
        assert '"model":"podium"' in text
    models = page.locator("#get--v1-models")
    await models.locator("summary").first.click()
    await models.get_by_role("button", name="Try it").click()
    await models.get_by_text("podium-ultra").first.wait_for()


async def test_a_body_and_an_address_are_filled_in_and_tried(page: Page, site: Site) -> None:
    run_id = await site.ask("Why is the sky blue?")
    await page.goto(site.url("/docs"))
    chat = page.locator("#post--v1-chat-completions")
    await chat.locator("summary").first.click()
    await chat.get_by_label("Body").fill('{"model": "checker", "messages": [')
    await chat.get_by_role("button", name="Try it").click()
    await expect(chat.get_by_role("status")).to_contain_text("JSON")
    body = '{"model": "checker", "messages": [{"role": "user", "content": "Check it"}]}'
    await chat.get_by_label("Body").fill(body)
    await chat.get_by_role("button", name="Try it").click()
    await expect(chat.get_by_role("status")).to_contain_text("I checked it: correct.")
    run = page.locator("#get--v1-runs-run-id-")
    await run.locator("summary").first.click()
    await run.get_by_label("run_id").fill(run_id)
    await run.get_by_role("button", name="Try it").click()
    await expect(run.get_by_role("status")).to_contain_text("Why is the sky blue?")
    deleting = page.locator("#delete--v1-runs-run-id-")
    await deleting.locator("summary").first.click()
    await expect(deleting.get_by_role("button", name="Try it")).to_have_count(0)
