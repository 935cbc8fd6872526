"""Makes the pictures of the pages: a server with a scripted pool that has done some work, visited
by a browser, light and dark. Nothing in them was measured but what the page Experiments shows, a
training of this repository's (results/trials).

    .venv/bin/python scripts/screenshots.py [NAME...]
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, Literal

ROOT: Final = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))  # the server that the tests visit is the one to picture

from podium.conductors import Conductor, Plan, PlanningContext  # noqa: E402
from podium.core.errors import Unavailable  # noqa: E402
from podium.core.request import Price, Request  # noqa: E402
from podium.core.run import new_run_id, timestamp  # noqa: E402
from podium.core.worker import Caller, Worker  # noqa: E402
from podium.core.workflow import Step, Workflow  # noqa: E402
from podium.workers import ScriptedWorker  # noqa: E402
from support.site import Site, site_over  # noqa: E402

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

PICTURES: Final = ROOT / "docs" / "pictures"
LARGEST_BYTES: Final = 150_000
WIDTH, HEIGHT = 1200, 820
HEIGHTS: Final = {"chat": 1100, "run": 1200, "runs": 740}
"""Pages of which the first screen shows too little, or more than a picture may weigh."""
Scheme = Literal["light", "dark"]
SCHEMES: Final[tuple[Scheme, ...]] = ("light", "dark")

QUESTION: Final = (
    "Are there infinitely many primes? Prove it in two ways, and say which is clearer."
)
PLAN: Final = Workflow(
    (
        Step("proofs", "Prove it as Euclid did, from the product of finitely many primes."),
        Step("broad", "Prove it by the divergence of the harmonic series, as Euler did."),
        Step("critic", "Look for a gap in either proof, and say whether there is one.", (0, 1)),
        Step("proofs", "Set both proofs side by side, mended where need be, and choose.", "all"),
    )
)
OTHER_PLAN: Final = Workflow(
    (
        Step("broad", "Draft an answer."),
        Step("critic", "Say what is wrong or missing in the draft.", (0,)),
        Step("proofs", "Write the answer, mended.", "all"),
    )
)
EUCLID: Final = """\
Let $p_1, \\dots, p_n$ be primes. Then $N = p_1 p_2 \\cdots p_n + 1$ leaves the remainder 1 by each
of them, so a prime that divides $N$ is none of these."""
EULER: Final = """\
Were there finitely many, the product
$$\\prod_{p} \\frac{1}{1 - 1/p} = \\sum_{n=1}^{\\infty} \\frac{1}{n}$$
would be finite, and the harmonic series is not."""
ANSWER: Final = f"""\
**Yes.** Two proofs, and the first is the clearer one.

1. **Euclid.** {EUCLID}
2. **Euler.** {EULER}

Euclid's needs nothing but division with remainder.
"""
REPLIES: Final = {
    "as Euclid did": EUCLID,
    "as Euler did": EULER,
    "Look for a gap": "Both hold. In the second, say why the product may be multiplied out.",
    "side by side": ANSWER,
    "Bhutan": "Thimphu.",
    "silence": "*Reliqua silentium sunt.*",
    "contracts": "The second does, in clause 7.2; the others tie prices to an index.",
    "transistor": "In December 1947, by Bardeen, Brattain and Shockley.",
    "horses": "The step from one horse to two: the two groups have no horse in common.",
    "merges": "Walk both lists from the front, and take the smaller head each time.",
    "spiders": "114.",
    "database": "Copy, follow the changes, switch reads, then writes; keep the way back open.",
}
OTHERS: Final = (
    ("podium-mini", "What is the capital of Bhutan?"),
    ("podium-mini", "Translate 'the rest is silence' into Latin."),
    ("podium-ultra", "Which of these three contracts lets the supplier change its prices?"),
    ("podium-mini", "When was the transistor invented, and by whom?"),
    ("podium-ultra", "Find the fault in this proof that all horses have the same colour."),
    ("podium-ultra", "Write a function that merges two sorted lists, with tests."),
    ("podium-mini", "How many legs do twelve spiders and three ants have?"),
    ("podium-ultra", "Plan the move of a database of 2 TB without downtime."),
)
DAYS: Final = 12


class ByHand(Conductor):
    """Returns a prepared plan for each question."""

    name = "model"

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        """Return the plan; accept once there is an answer."""
        if context.answer is not None:
            return Plan(None)
        return Plan(PLAN if context.question == QUESTION else OTHER_PLAN)


def said(request: Request) -> str:
    """Return the reply for the last known phrase in the text."""
    words = request.text
    known = [(words.rfind(word), reply) for word, reply in REPLIES.items() if word in words]
    return max(known)[1] if known else "It holds."


def pool() -> list[Worker]:
    """Return slow workers, so that progress is visible."""
    overloaded = iter([Unavailable("overloaded")])
    return [
        ScriptedWorker(
            "proofs",
            said,
            description="strong at proofs and long texts; dear",
            price=Price(input=5.0, output=25.0),
            delay_seconds=0.9,
        ),
        ScriptedWorker(
            "broad",
            said,
            description="knows a little of everything, reads pictures",
            price=Price(input=1.25, output=10.0),
            delay_seconds=1.3,
        ),
        ScriptedWorker(
            "critic",
            lambda request: next(overloaded, None) or said(request),
            description="quick and cheap; good at finding faults",
            price=Price(input=0.4, output=2.0),
            delay_seconds=0.4,
        ),
        ScriptedWorker(
            "local", said, description="small, on this machine", price=Price(input=0.0, output=0.0)
        ),
    ]


async def prepare(site: Site) -> str:
    """Create runs now and on earlier days; return the run to show."""
    shown = await site.ask(QUESTION)
    done = [await site.ask(question, model) for model, question in OTHERS]
    now = datetime.now(UTC)
    for number, run_id in enumerate(done * 4):
        run = await site.store.load(run_id)
        moment = now - timedelta(days=number * DAYS / (4 * len(done)), minutes=7 * number + 3)
        await site.keep(replace(run, id=new_run_id(), created_at=timestamp(moment)))
    return shown


async def ask_in_chat(page: Page, site: Site) -> None:
    """Wait in the chat until the answer is there."""
    await page.goto(site.url("/"))
    await page.get_by_label("Message").fill(QUESTION)
    await page.get_by_label("Model").select_option("podium-ultra")
    await page.get_by_role("button", name="Send", exact=True).click()
    await page.get_by_text("needs nothing but division").first.wait_for()


async def picture(browser: Browser, site: Site, name: str, path: str, scheme: Scheme) -> Path:
    """Save one page as an image."""
    context = await browser.new_context(
        viewport={"width": WIDTH, "height": HEIGHTS.get(name, HEIGHT)},
        color_scheme=scheme,
        reduced_motion="reduce",
        locale="en-GB",
        timezone_id="UTC",
    )
    page = await context.new_page()
    if name == "chat":
        await ask_in_chat(page, site)
    else:
        await page.goto(site.url(path))
    await page.wait_for_load_state("networkidle")
    written = PICTURES / f"page-{name}{'-dark' if scheme == 'dark' else ''}.png"
    await page.screenshot(path=written)
    await context.close()
    size = written.stat().st_size
    if size > LARGEST_BYTES:
        raise SystemExit(f"{written.name} has {size:,} bytes, over {LARGEST_BYTES:,}; show less")
    return written


@asynccontextmanager
async def launched() -> AsyncIterator[Browser]:
    """Start a browser, if one is installed."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise SystemExit("no browser: install chromium (apt-get install chromium)")
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chromium,
            args=["--no-sandbox", "--disable-background-networking", "--force-color-profile=srgb"],
        )
        yield browser
        await browser.close()


async def main(names: list[str]) -> None:
    """Save the images of these names, or all."""
    trials = str(ROOT / "results" / "trials")
    with TemporaryDirectory() as directory:
        async with (
            site_over(
                Path(directory), pool(), conductor=ByHand(), experiment_dirs=(trials,)
            ) as site,
            launched() as browser,
        ):
            run_id = await prepare(site)
            pages = {
                "chat": "/",
                "runs": "/runs",
                "run": f"/runs/{run_id}",
                "pool": "/pool",
                "spend": "/spend",
                "experiments": "/experiments/trials.grpo-4",
                "api": "/docs",
            }
            if unknown := set(names) - set(pages):
                raise SystemExit(f"no page {', '.join(unknown)}; there is {', '.join(pages)}")
            for name in names or pages:
                for scheme in SCHEMES:
                    written = await picture(browser, site, name, pages[name], scheme)
                    print(f"{written.relative_to(ROOT)}  {written.stat().st_size:,} bytes")  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
