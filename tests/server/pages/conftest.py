"""Pages in a real browser, over a real server with scripted workers.

Tests here are asynchronous and share one event loop, in which the browser is driven and the
servers run. They also share a tab, which is swept between them: to open a new profile for each
would be most of what they take. Whatever a test does, its page may say nothing on the console and
ask no other origin: the fixture `page` looks at that in the end.

What is waited for in JavaScript is written as a function: an expression would be evaluated anew
each time, which the policy of the pages forbids.
"""

from __future__ import annotations

import inspect
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import pytest
import pytest_asyncio

from support.site import Site, site_over

if TYPE_CHECKING:
    from playwright.async_api import (
        Browser,
        BrowserContext,
        ConsoleMessage,
        Error,
        Page,
        Request,
        ViewportSize,
    )

    from podium.conductors import Conductor
    from podium.core.worker import Worker
    from podium.engine.runner import Options

CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser")
QUIET: Final = (
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MILLISECONDS: Final = 20_000
"""How long is waited for what a page is to show: a busy machine makes no test fail."""
BLANK: Final = "about:blank"
WINDOW: Final[ViewportSize] = {"width": 1280, "height": 900}
HERE: Final = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One event loop for all tests of this directory."""
    for item in items:
        if item.path.is_relative_to(HERE) and inspect.iscoroutinefunction(
            getattr(item, "obj", None)
        ):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@dataclass
class Watched:
    """What a page asked for, and what it said on the console. A test that provokes an error says
    with `allow` which words of the console it expects."""

    pages: list[Page] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    origins: set[str] = field(default_factory=set)
    allowed: list[str] = field(default_factory=list)

    def allow(self, *words: str) -> None:
        """Expect messages that have these words in them."""
        self.allowed += words

    def watch(self, page: Page) -> None:
        """Keep what the page asks and says from now on."""
        self.pages.append(page)
        page.on("request", self._see)
        page.on("console", self._hear)
        page.on("pageerror", self._catch)

    async def leave(self) -> None:
        """Leave what the pages show, before the server ends that they go on asking."""
        for page in self.pages:
            if not page.is_closed():
                await sweep(page)

    def forget(self, page: Page) -> None:
        """What the page asks and says is no longer this test's."""
        page.remove_listener("request", self._see)
        page.remove_listener("console", self._hear)
        page.remove_listener("pageerror", self._catch)

    def _see(self, request: Request) -> None:
        self.asked.append(request.url)

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "assert"):
            self.said.append(f"{message.type}: {message.text}")

    def _catch(self, error: Error) -> None:
        self.said.append(f"uncaught: {error}")

    def check(self) -> None:
        """No unexpected console message, and no request to another host."""
        unexpected = [said for said in self.said if not any(word in said for word in self.allowed)]
        assert not unexpected, f"the console said: {unexpected}"
        own = ("data:", "blob:", "about:", *self.origins)
        strangers = [url for url in self.asked if not url.startswith(own)]
        assert not strangers, f"asked of other origins: {strangers}"


async def sweep(page: Page) -> None:
    """Leave what is shown, and keep nothing of it for the next user of the tab. A page
    that is not ours cannot be swept, and goes with its whole profile."""
    from playwright.async_api import Error

    if page.url == BLANK:
        return
    try:
        await page.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
        await page.unroute_all(behavior="ignoreErrors")
        await page.goto(BLANK)
        await page.emulate_media(color_scheme="null", reduced_motion="null")
        await page.set_viewport_size(WINDOW)
    except Error:
        await page.context.close()


async def new_profile(browser: Browser) -> BrowserContext:
    """A profile of which nothing is known, nor does it know anything."""
    made = await browser.new_context(viewport=WINDOW, locale="en-US", timezone_id="Europe/Vienna")
    made.set_default_timeout(PATIENCE_MILLISECONDS)
    return made


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Chromium, once for all tests."""
    if CHROMIUM is None:
        pytest.skip("NO BROWSER: install chromium (apt-get install chromium) to try the pages")
    from playwright.async_api import async_playwright, expect

    expect.set_options(timeout=PATIENCE_MILLISECONDS)
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=CHROMIUM, args=[*QUIET])
        yield launched
        await launched.close()


@pytest.fixture
def fresh_profile() -> None:
    """A browser profile for one test only."""


@pytest_asyncio.fixture(loop_scope="session")
async def context(
    browser: Browser, request: pytest.FixtureRequest
) -> AsyncIterator[BrowserContext]:
    """The profile that tests use one after the other."""
    alone = "fresh_profile" in request.fixturenames
    made = await new_profile(browser) if alone or not browser.contexts else browser.contexts[0]
    yield made
    if made not in browser.contexts:  # it was closed, as it could not be swept
        return
    if alone:
        await made.close()
    else:
        await made.clear_cookies()
        await made.clear_permissions()


@pytest.fixture
def watched() -> Watched:
    """What the page asks for and says; checked when the test is over."""
    return Watched()


@pytest_asyncio.fixture(loop_scope="session")
async def page(context: BrowserContext, watched: Watched) -> AsyncIterator[Page]:
    """An empty page, 1280 pixels wide, light."""
    made = context.pages[0] if context.pages else await context.new_page()
    watched.watch(made)
    yield made
    await watched.leave()
    watched.forget(made)
    watched.check()


class Clock(Protocol):
    """A page's clock, as Playwright has it."""

    async def run_for(self, ticks: int) -> None:
        """Put it forward by so many milliseconds; what was due meanwhile happens."""


@pytest_asyncio.fixture(loop_scope="session")
async def clock(page: Page, fresh_profile: None) -> Clock:
    """The clock of a page that has a profile of its own: whose clock is taken over stays so."""
    await page.clock.install()
    return page.clock


class Serve(Protocol):
    """Opens a server in the test's directory; the page is left before it ends."""

    def __call__(
        self,
        workers: Sequence[Worker] | None = None,
        *,
        keys: bool = False,
        conductor: Conductor | None = None,
        options: Options | None = None,
        **settings: Any,
    ) -> AbstractAsyncContextManager[Site]: ...


@pytest.fixture
def serve(tmp_path: Path, watched: Watched) -> Serve:
    """Servers of a test's own."""

    @asynccontextmanager
    async def served(
        workers: Sequence[Worker] | None = None, **settings: Any
    ) -> AsyncIterator[Site]:
        async with site_over(tmp_path, workers, **settings) as made:
            watched.origins.add(f"{made.address}/")
            try:
                yield made
            finally:
                await watched.leave()

    return served


@pytest_asyncio.fixture(loop_scope="session")
async def site(serve: Serve) -> AsyncIterator[Site]:
    """A server with the scripted pool of three that asks for no keys."""
    async with serve() as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def site_with_keys(serve: Serve) -> AsyncIterator[Site]:
    """The same with keys on; `site_with_keys.token` is a key that may do everything."""
    async with serve(keys=True) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def on_a_page(page: Page, site: Site) -> Page:
    """A page on which modules can be called."""
    await page.goto(site.url("/experiments"))
    await page.get_by_text("There are no trainings or evaluations yet.").wait_for()
    return page
