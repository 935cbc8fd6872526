"""Every page is accessible to axe-core: light, dark and in a small window."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest

from podium.core.run import dump
from support.browsing import shown
from support.runs_on_record import kept_run
from support.site import Site

if TYPE_CHECKING:
    from playwright.async_api import Page

    from server.pages.conftest import Serve

Scheme = Literal["light", "dark"]

AXE: Final = "axe_playwright_python"

LOOKS: Final[tuple[tuple[Scheme, int], ...]] = (("light", 1280), ("dark", 1280), ("light", 380))
UNFOLD: Final = "[...document.querySelectorAll('details')].slice(0, 6).forEach(d => d.open = true)"
SETTLED: Final = """async ([scheme, width]) => {
    const frame = () => new Promise(requestAnimationFrame);
    const isThere = () => matchMedia(`(prefers-color-scheme: ${scheme})`).matches
        && matchMedia('(prefers-reduced-motion: reduce)').matches && innerWidth === width;
    for (let n = 0; n < 300 && !isThere(); n += 1) await frame();
    for (let n = 0; n < 3; n += 1) await frame();
    // What is inherited changes once more each time that whom it is inherited from has changed.
    for (let n = 0; n < 100 && document.getAnimations().length > 0; n += 1) {
        await Promise.allSettled(document.getAnimations().map((animation) => animation.finished));
        await frame();
    }
}"""
COLOURS: Final = ("color-contrast", "link-in-text-block")
"""What alone can differ between light and dark."""
RUN: Final = """async (rules) => {
    const options = { resultTypes: ['violations'], preload: false };
    if (rules) options.runOnly = rules;
    const { violations } = await axe.run(document, options);
    return violations.map(({ id, impact, help, nodes }) => ({
        id, impact, help, where: nodes.map((node) => [node.target, node.failureSummary]),
    }));
}"""


@pytest.fixture(scope="session")
def axe() -> str:
    pytest.importorskip(AXE, reason=f"NO AXE: install {AXE} to look for barriers")
    return (files(AXE) / "axe.min.js").read_text("utf-8")


async def barriers(page: Page, rules: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """The violations on the page as it stands, once axe is on it: by all rules, or by
    these."""
    found: list[dict[str, Any]] = await page.evaluate(RUN, list(rules) or None)
    return found


async def barriers_in_every_look(page: Page, axe: str) -> dict[tuple[Scheme, int], Any]:
    """The violations on the page that was gone to, light, dark and small."""
    await shown(page)
    await page.evaluate(UNFOLD)
    await shown(page)
    await page.evaluate(axe)
    found = {}
    for scheme, width in LOOKS:
        await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        await page.set_viewport_size({"width": width, "height": 900})
        await page.evaluate(SETTLED, [scheme, width])
        if barred := await barriers(page, COLOURS if scheme == "dark" else ()):
            found[scheme, width] = barred
    return found


@pytest.mark.parametrize(
    "path", ["/", "/runs", "/runs/{run}", "/pool", "/keys", "/spend", "/experiments", "/docs"]
)
async def test_every_page_is_accessible(page: Page, site: Site, axe: str, path: str) -> None:
    run_id = await site.ask("Compare two proofs that there are infinitely many primes!")
    await page.goto(site.url(path.format(run=run_id)))
    assert not await barriers_in_every_look(page, axe)


async def test_answers_beside_an_edited_plan_are_accessible(
    page: Page, site: Site, axe: str
) -> None:
    await page.goto(site.address)
    await page.get_by_label("Model").select_option("podium-ultra")
    await page.get_by_label("Message").fill("Compare two proofs that there are many primes!")
    await page.keyboard.press("Control+Enter")
    await page.get_by_role("button", name="Run beside the best").click()
    await page.get_by_role("article", name="solver alone").wait_for()
    await page.get_by_role("button", name="Edit the plan and run it again").click()
    await page.get_by_role("button", name="Move up: step 2").click()
    await page.get_by_text("a step reads only earlier ones").first.wait_for()
    await page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    await page.evaluate(axe)
    assert not await barriers(page)


async def test_the_login_page_is_accessible(page: Page, site_with_keys: Site, axe: str) -> None:
    await page.goto(site_with_keys.url("/runs"))
    await page.get_by_role("dialog").wait_for()
    await page.evaluate(axe)
    assert not await barriers(page)


async def test_a_barrier_would_be_found(page: Page, axe: str) -> None:
    pale = "<p style='color: #ccc; background: #fff'>hardly to be read</p>"
    await page.set_content(f"<html><body><img src='data:,'><input>{pale}</body></html>")
    await page.evaluate(axe)
    found = {item["id"] for item in await barriers(page)}
    assert found >= {"image-alt", "label", "color-contrast"}
    assert [item["id"] for item in await barriers(page, COLOURS)] == ["color-contrast"]


async def test_a_comparison_of_runs_is_accessible(page: Page, site: Site, axe: str) -> None:
    runs = [await site.ask("Compare two proofs of it!"), await site.ask("Why?", "podium-mini")]
    await page.goto(site.url(f"/runs/compare?run={runs[0]}&run={runs[1]}"))
    await page.get_by_role("heading", name="Answers").wait_for()
    assert not await barriers_in_every_look(page, axe)


async def test_samples_of_an_evaluation_are_accessible(
    page: Page, serve: Serve, tmp_path: Path, axe: str
) -> None:
    sample = {"task": "mine/1", "right": True, "expected": "42", "calls": 1, "cost_usd": 0.1}
    for name, right in (("first", True), ("second", False)):
        (tmp_path / "measured" / name).mkdir(parents=True)
        (tmp_path / "measured" / name / "evaluation.json").write_text('{"n": 2}')
        line = {**sample, "right": right, "run": dump(kept_run(1))}
        (tmp_path / "measured" / name / "conductor.jsonl").write_text(json.dumps(line) + "\n")
    async with serve(experiment_dirs=(str(tmp_path / "measured"),)) as site:
        for query in ("", "?with=measured.second"):
            await page.goto(site.url(f"/experiments/measured.first{query}"))
            await page.locator("details.result > summary").first.click()
            await page.get_by_text("Plan, prompts and replies").first.click()
            await page.locator(".result-run .step-head").first.wait_for()
            assert not await barriers_in_every_look(page, axe), query


async def test_training_curves_and_tables_are_accessible(
    page: Page, serve: Serve, tmp_path: Path, axe: str
) -> None:
    root = Path(__file__).parents[3]
    (tmp_path / "mine").mkdir()
    row = {"strategy": "ideal", "accuracy": 0.3, "interval": [0.2, 0.4], "note": "a note"}
    (tmp_path / "mine" / "summary.json").write_text(json.dumps({"rows": [row]}))
    samples = {"step": 109, "question": "Why?", "text": "model_id = [0]", "right": True}
    trained = tmp_path / "trained"
    trained.mkdir()
    steps = (root / "results" / "trials" / "grpo-4.jsonl").read_text().splitlines(keepends=True)
    (trained / "metrics.jsonl").write_text("".join(steps[-12:]))
    (trained / "samples.jsonl").write_text(json.dumps(samples) + "\n")
    settings = (str(trained), str(tmp_path / "mine"))
    async with serve(experiment_dirs=settings) as site:
        for path in ("/experiments", "/experiments/trained", "/experiments/mine"):
            await page.goto(site.url(path))
            assert not await barriers_in_every_look(page, axe), path
