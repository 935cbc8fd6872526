"""What tests of pages do in a browser, whichever page it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from playwright.async_api import Page

SHOWN: Final = """() => document.querySelector('main .page')?.textContent.length > 0
    && document.querySelector('main .state-loading') === null"""


async def shown(page: Page) -> None:
    """Wait until the page that was gone to is there, and all that it was still fetching."""
    await page.wait_for_function(SHOWN)
