"""What tests of pages do in a browser, whichever page it is."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from playwright.async_api import Download, Page

SHOWN: Final = """() => document.querySelector('main .page')?.textContent.length > 0
    && document.querySelector('main .state-loading, main [aria-busy=true]') === null"""


SHIFTS: Final = """window.shifted = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.shifted += entry.value;
}).observe({ type: 'layout-shift', buffered: true });"""
"""Sums up how far what is shown moves without the reader having done anything."""


async def shown(page: Page) -> None:
    """Wait until the page that was gone to is there, and all that it was still fetching."""
    await page.wait_for_function(SHOWN)


async def sign_in(page: Page, token: str) -> None:
    """Give the page the key that it asks for."""
    await page.get_by_role("dialog").get_by_label("Key").fill(token)
    await page.keyboard.press("Enter")


async def content(download: Download) -> str:
    """Read what was downloaded."""
    path = await download.path()
    return await asyncio.to_thread(Path(path).read_text, "utf-8")
