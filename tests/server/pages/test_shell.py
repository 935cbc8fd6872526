"""The frame around the pages: addresses, navigation, light and dark, small windows, keyboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.site import Site

if TYPE_CHECKING:
    from playwright.async_api import Page

PAGES = {
    "/": "Playground",
    "/runs": "Runs",
    "/pool": "Pool",
    "/spend": "Spend",
    "/learning": "Learning",
}


@pytest.mark.parametrize("path", PAGES)
async def test_every_page_has_an_address_of_its_own(page: Page, site: Site, path: str) -> None:
    await page.goto(site.url(path))
    await page.get_by_role("heading", level=1).first.wait_for()
    assert await page.title() == f"{PAGES[path]} · Podium"
    current = page.locator("nav [aria-current=page]")
    assert await current.inner_text() == PAGES[path]
