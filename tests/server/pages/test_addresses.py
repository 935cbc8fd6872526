from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.site import Site

playwright = pytest.importorskip("playwright.async_api")

if TYPE_CHECKING:
    from playwright.async_api import Page

    from server.pages.conftest import Watched


async def test_the_pages_report_an_unknown_address(
    page: Page, site: Site, watched: Watched
) -> None:
    watched.allow("404")
    response = await page.goto(site.url("/nothing/here"))
    assert response is not None
    assert response.status == 404
    await page.get_by_text("Page not found: /nothing/here").wait_for()
    await page.get_by_role("link", name="Go to the start page").wait_for()
