"""The page Keys: create, change and revoke keys; caps with what is used of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from podium.server.access.keys import make_key
from podium.store.keys import Allowance, Rules
from support.browsing import sign_in
from support.site import Site

playwright = pytest.importorskip("playwright.async_api")
expect = playwright.expect

if TYPE_CHECKING:
    from playwright.async_api import Page

    from server.pages.conftest import Watched


async def open_keys(page: Page, site: Site) -> None:
    await page.goto(site.url("/keys"))
    await sign_in(page, site.token)
    await expect(page.get_by_role("row", name=re.compile("^Ada "))).to_be_visible()


async def test_a_created_key_works_and_its_secret_is_shown_once(
    site_with_keys: Site, page: Page
) -> None:
    site = site_with_keys
    await open_keys(page, site)
    await page.get_by_role("button", name="Create key").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Name", exact=True).fill("laptop")
    await dialog.get_by_role("checkbox", name="see plans").uncheck()
    await dialog.get_by_label("Per day, tokens").fill("250000")
    await dialog.get_by_label("Requests per minute").fill("60")
    await dialog.get_by_role("button", name="Create").click()
    secret = await page.get_by_label("API key", exact=True).input_value()
    assert secret.startswith("pk_")
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.get_by_role("button", name="Copy").click()
    await expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert await page.evaluate("navigator.clipboard.readText()") == secret
    await page.get_by_role("button", name="Done").click()
    await expect(page.locator("dialog")).to_have_count(0)
    row = page.get_by_role("row", name="laptop")
    await expect(row).to_contain_text("60 requests/min")
    await expect(row).to_contain_text("0 of 250,000 tokens per day, 250,000 left")
    await expect(row).to_contain_text("never")
    assert secret not in await page.content()
    site.token = secret
    await site.ask("Why is the sky blue?")
    await page.reload()
    await expect(row).not_to_contain_text("never")


async def test_bars_show_what_is_used_of_a_cap(site_with_keys: Site, page: Page) -> None:
    site, admin = site_with_keys, site_with_keys.token
    rules = Rules(per_day=Allowance(tokens=1_000_000), per_month=Allowance(tokens=1_000))
    made = make_key("capped", rules)
    await site.store.keys.add(made.key)
    site.token = made.token
    await site.ask("Why is the sky blue?")
    site.token = admin
    await open_keys(page, site)
    row = page.get_by_role("row", name="capped")
    meters = row.get_by_role("meter")
    assert await meters.count() == 2
    day, month = [float(await meters.nth(at).get_attribute("value") or 0) for at in (0, 1)]
    assert 0 < day < month <= 1


async def test_a_key_is_changed_and_what_is_refused_is_reported_in_the_dialog(
    site_with_keys: Site, page: Page, watched: Watched
) -> None:
    watched.allow("400")
    site = site_with_keys
    await site.store.keys.add(make_key("laptop", Rules(tokens_per_minute=9_000)).key)
    await open_keys(page, site)
    await page.get_by_role("button", name="Edit laptop").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_label("Tokens per minute")).to_have_value("9000")
    await dialog.get_by_label("Never send to").fill("solvr")
    await dialog.get_by_role("button", name="Save").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("'solvr'")
    await dialog.get_by_label("Never send to").fill("solver")
    await dialog.get_by_label("Tokens per minute").fill("")
    await dialog.get_by_role("button", name="Save").click()
    row = page.get_by_role("row", name="laptop")
    await expect(row).to_contain_text("without solver")
    await expect(row).to_contain_text("no limit")


async def test_a_revoked_key_is_refused_and_the_last_administrator_stays(
    site_with_keys: Site, page: Page, watched: Watched
) -> None:
    watched.allow("409")
    site = site_with_keys
    made = make_key("laptop", Rules())
    await site.store.keys.add(made.key)
    await open_keys(page, site)
    await page.get_by_role("button", name="Revoke laptop").click()
    await page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    await page.get_by_text("Revoked and expired keys (1)").click()
    ended = page.get_by_role("region", name="Revoked and expired keys")
    await expect(ended.get_by_role("row", name="laptop")).to_contain_text("revoked")
    found = await site.store.keys.key(made.key.id)
    assert found is not None
    assert found.state == "revoked"
    await page.get_by_role("button", name="Revoke Ada").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Revoke").click()
    await expect(dialog.get_by_role("alert")).to_contain_text(
        "last active key with the scope admin"
    )


async def test_any_other_key_sees_itself_and_cannot_manage(
    site_with_keys: Site, page: Page
) -> None:
    site = site_with_keys
    made = make_key("laptop", Rules())
    await site.store.keys.add(made.key)
    await page.goto(site.url("/keys"))
    await sign_in(page, made.token)
    await expect(page.get_by_role("row", name="laptop")).to_be_visible()
    await expect(page.get_by_role("row", name=re.compile("^Ada "))).to_have_count(0)
    for name in ("Create key", "Revoke laptop"):
        await expect(page.get_by_role("button", name=name)).to_have_count(0)


async def test_without_keys_the_page_says_how_to_require_them(site: Site, page: Page) -> None:
    await page.goto(site.url("/keys"))
    await expect(page.get_by_text("podium serve --keys")).to_be_visible()
    await expect(page.get_by_text("There are no keys yet.")).to_be_visible()
