"""Signing in: over HTTP, and in the browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx

from podium.server.access.keys import make_key
from podium.store.keys import Rules
from support.browsing import sign_in
from support.site import Site

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page

    from server.pages.conftest import Clock, Watched


async def test_a_key_is_exchanged_for_a_cookie_that_scripts_cannot_read(
    site_with_keys: Site,
) -> None:
    token = site_with_keys.token
    async with httpx.AsyncClient(base_url=site_with_keys.address) as client:
        assert (await client.get("/session")).json()["name"] is None
        assert (await client.get("/v1/runs")).status_code == 401
        refused = await client.post("/session", json={"key": "pk_0_wrong"})
        assert (refused.status_code, "set-cookie" in refused.headers) == (401, False)
        answer = await client.post("/session", json={"key": token})
        assert answer.json()["name"] == "Ada"
        cookie = answer.headers["set-cookie"]
        for word in ("HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43200"):
            assert word in cookie
        assert token not in cookie + answer.text
        assert (await client.get("/v1/runs")).status_code == 200
        assert (await client.get("/session")).json()["name"] == "Ada"
        asked = await client.post(
            "/v1/chat/completions",
            json={"model": "podium", "messages": [{"role": "user", "content": "Why?"}]},
        )
        assert asked.status_code == 200
        assert (await client.delete("/session")).status_code == 204
        assert (await client.get("/v1/runs")).status_code == 401


async def test_a_page_of_another_origin_cannot_use_the_cookie(site_with_keys: Site) -> None:
    """A page at another port of the same machine is of the same site, so that its browser sends
    the cookie along."""
    async with httpx.AsyncClient(base_url=site_with_keys.address) as client:
        await client.post("/session", json={"key": site_with_keys.token})
        run_id = await site_with_keys.ask("Why?")
        other = {"Origin": "http://127.0.0.1:1", "Sec-Fetch-Site": "same-site"}
        path = f"/v1/runs/{run_id}"
        assert (await client.delete(path, headers=other)).status_code == 403
        body = {"model": "podium", "messages": [{"role": "user", "content": "Why?"}]}
        for at in ("/v1/chat/completions", "/v1/plan"):
            assert (await client.post(at, json=body, headers=other)).status_code == 403
        own = {"Origin": site_with_keys.address, "Sec-Fetch-Site": "same-origin"}
        assert (await client.delete(path, headers=own)).status_code == 204


async def test_the_page_asks_for_a_key_and_keeps_it_nowhere(
    page: Page, context: BrowserContext, site_with_keys: Site, watched: Watched
) -> None:
    watched.allow("401")
    token = site_with_keys.token
    await page.goto(site_with_keys.url("/runs"))
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Key").fill("pk_0_wrong")
    await dialog.get_by_role("button", name="Sign in").click()
    await dialog.get_by_text("invalid API key").wait_for()
    await dialog.get_by_label("Key").fill(token)
    await page.keyboard.press("Enter")
    await dialog.wait_for(state="detached")
    await page.get_by_role("heading", level=1).first.wait_for()
    kept = await page.evaluate(
        "JSON.stringify([document.cookie, {...localStorage}, {...sessionStorage}, location.href])"
    )
    assert token not in kept
    assert not any(token in url for url in watched.asked)
    (cookie,) = await context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    await page.reload()
    await page.get_by_role("button", name="Sign out").click()
    await dialog.wait_for()
    assert await context.cookies() == []


async def test_the_back_button_shows_nothing_after_logout(
    site_with_keys: Site, page: Page, watched: Watched
) -> None:
    watched.allow("401")
    await page.goto(site_with_keys.url("/"))
    await sign_in(page, site_with_keys.token)
    await page.get_by_label("Message").fill("What is my diagnosis?")
    await page.get_by_role("button", name="Send", exact=True).click()
    await page.get_by_role("article").first.wait_for()
    await page.get_by_role("link", name="Runs", exact=True).click()
    await page.get_by_role("heading", level=1, name="Runs").wait_for()
    await page.go_back()
    await page.get_by_role("article").first.wait_for()
    await page.go_forward()
    await page.get_by_role("button", name="Sign out").click()
    await page.get_by_role("dialog").wait_for()
    await page.go_back()
    await page.get_by_role("button", name="Not now").click()
    await page.go_back()
    await page.get_by_text("Not signed in.").wait_for()
    assert await page.get_by_text("diagnosis").count() == 0
    assert await page.get_by_label("Message").count() == 0


async def test_without_a_login_the_page_says_how(
    page: Page, site_with_keys: Site, watched: Watched
) -> None:
    watched.allow("401")
    await page.goto(site_with_keys.url("/docs"))
    await page.get_by_role("button", name="Not now").click()
    state = page.locator(".state-empty")
    await state.get_by_text("Not signed in.").wait_for()
    await page.get_by_role("link", name="Runs", exact=True).click()
    await page.get_by_role("heading", name="Runs").wait_for()
    await state.get_by_role("button", name="Sign in").wait_for()
    assert await page.get_by_role("dialog").count() == 0, "no is an answer, for all pages"
    assert await page.get_by_role("banner").get_by_role("button", name="Sign in").is_visible()
    assert "Bearer" not in await page.locator("body").inner_text()
    await state.get_by_role("button", name="Sign in").click()
    await sign_in(page, site_with_keys.token)
    await page.get_by_text("There are no runs").wait_for()
    await page.get_by_role("banner").get_by_text("Ada", exact=True).wait_for()
    assert await page.get_by_role("button", name="Sign in").count() == 0


async def test_a_session_that_ends_while_a_page_is_looked_at_is_reported_without_a_dialog(
    site_with_keys: Site, page: Page, context: BrowserContext, watched: Watched, clock: Clock
) -> None:
    watched.allow("401")
    await page.goto(site_with_keys.url("/pool"))
    await sign_in(page, site_with_keys.token)
    await page.get_by_role("row", name="solver").wait_for()
    await context.clear_cookies()
    await clock.run_for(6000)
    notice = page.locator(".notice")
    button = notice.get_by_role("button", name="Sign in")
    await button.focus()
    async with page.expect_response("**/v1/pool*"):
        await clock.run_for(6000)
    assert await page.get_by_role("dialog").count() == 0
    assert await button.evaluate("button => button === document.activeElement")
    await button.click()
    await sign_in(page, site_with_keys.token)
    await page.get_by_role("dialog").wait_for(state="detached")
    await clock.run_for(6000)
    await notice.wait_for(state="hidden")


async def test_the_header_offers_to_sign_in(
    page: Page, site_with_keys: Site, watched: Watched
) -> None:
    watched.allow("401")
    await page.goto(site_with_keys.url("/runs"))
    await page.get_by_role("button", name="Not now").click()
    await page.get_by_role("banner").get_by_role("button", name="Sign in").click()
    await sign_in(page, site_with_keys.token)
    await page.get_by_text("There are no runs").wait_for()


async def test_pages_that_a_key_cannot_see_are_not_offered_to_it(
    site_with_keys: Site, page: Page, watched: Watched
) -> None:
    watched.allow("401")
    asking = make_key("Asker", Rules(scopes=frozenset({"ask"})))
    await site_with_keys.store.keys.add(asking.key)
    await page.goto(site_with_keys.address)
    await sign_in(page, asking.token)
    await page.get_by_role("banner").get_by_text("Asker", exact=True).wait_for()
    assert await page.get_by_role("navigation", name="Pages").inner_text() == "Chat"


async def test_pages_hide_actions_that_a_key_lacks(
    site_with_keys: Site, page: Page, watched: Watched
) -> None:
    watched.allow("401")
    reader = make_key("Reader", Rules(scopes=frozenset({"ask", "runs:read"})))
    await site_with_keys.store.keys.add(reader.key)
    await page.goto(site_with_keys.address)
    await sign_in(page, reader.token)
    plan = page.get_by_title("This API key may not see plans.")
    await plan.wait_for()
    assert await plan.is_disabled()
    await page.get_by_label("Model").select_option("podium-ultra")
    await page.get_by_label("Message").fill("Compare two proofs!")
    await page.get_by_role("button", name="Send", exact=True).click()
    edit = page.get_by_role("button", name="Edit the plan and run it again")
    await edit.wait_for()
    assert await edit.is_disabled()
    assert await edit.get_attribute("title") == "This API key may not run its own workflow."
    assert await page.get_by_role("button", name="Run beside the best").is_disabled()
    await page.get_by_role("link", name="Open the run").click()
    delete = page.get_by_role("button", name="Delete")
    await delete.wait_for()
    assert await delete.is_disabled()
    assert await delete.get_attribute("title") == "This API key may not delete runs."


async def test_a_session_ends_with_its_key(site_with_keys: Site) -> None:
    async with httpx.AsyncClient(base_url=site_with_keys.address) as client:
        await client.post("/session", json={"key": site_with_keys.token})
        (key,) = await site_with_keys.store.keys.keys()
        await site_with_keys.store.keys.revoke(key.id)
        site_with_keys.service.access.refresh(key.id)
        assert (await client.get("/v1/runs")).status_code == 401


async def test_an_expired_session_is_reported(
    site_with_keys: Site, page: Page, watched: Watched
) -> None:
    watched.allow("401")
    await page.goto(site_with_keys.url("/runs"))
    await sign_in(page, site_with_keys.token)
    await page.get_by_text("There are no runs yet.").wait_for()
    await page.context.clear_cookies()
    await page.get_by_role("link", name="Workers").click()
    await page.get_by_role("dialog").get_by_text("Your session has expired").wait_for()
