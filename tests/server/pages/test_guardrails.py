"""What guardrails did, on a run's page."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from podium.core.request import Usage
from podium.core.run import Attempt, GuardrailCheck
from support.runs_on_record import kept_run
from support.site import Site

if TYPE_CHECKING:
    from playwright.async_api import Page

HOSTILE = "<img src=x onerror=\"document.title='gone'\"> is not supported"


async def test_a_runs_page_says_what_guardrails_did_in_plain_text(page: Page, site: Site) -> None:
    (round_,) = kept_run().rounds
    judged = GuardrailCheck(
        guardrail="grounding",
        stage="answer",
        action="blocked",
        reason=HOSTILE,
        step=0,
        worker="solver",
        attempts=(Attempt("judge", Usage(40, 2, 0, 0, 0), 0.25, 0, 1),),
    )
    steps = (replace(round_.steps[0], guardrail_checks=(judged,)),)
    redacted = GuardrailCheck(
        guardrail="privacy", stage="question", action="redacted", reason="2 × e-mail"
    )
    rounds = (replace(round_, steps=steps),)
    run = kept_run(rounds=rounds, guardrail_checks=(redacted,), guardrails=("privacy", "grounding"))
    await site.keep(run)
    await page.goto(site.url(f"/runs/{run.id}"))
    lines = page.locator(".guardrails li")
    await lines.first.wait_for()
    assert await lines.all_inner_texts() == [
        "privacy redacted the question: 2 × e-mail.",
        f"grounding blocked the answer of step 1 in round 1 (solver): {HOSTILE}."
        " Its verifier took 42 tokens, $0.25.",
    ]
    assert await page.locator(".guardrails img").count() == 0
    assert "gone" not in await page.title()


async def test_a_run_without_deeds_of_guardrails_says_nothing_of_them(
    page: Page, site: Site
) -> None:
    run = kept_run(guardrails=("privacy",))
    await site.keep(run)
    await page.goto(site.url(f"/runs/{run.id}"))
    await page.locator(".run-answer").wait_for()
    assert await page.get_by_role("heading", name="Guardrails").count() == 0


async def test_a_run_that_was_blocked_says_so_and_not_how_to_go_on(page: Page, site: Site) -> None:
    error = "the guardrail 'grounding' blocked the answer: made up"
    run = kept_run(status="failed", answer=None, error=error, blocked_by="grounding")
    await site.keep(run)
    await page.goto(site.url(f"/runs/{run.id}"))
    notice = page.locator(".run-notice")
    await notice.get_by_text("A guardrail blocked this run").wait_for()
    text = await notice.inner_text()
    assert error in text
    assert "resume" not in text
