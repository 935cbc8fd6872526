"""Every example on docs/reference/plan-format.md is what it says it is."""

from __future__ import annotations

import doctest
import json
import re
from pathlib import Path

from podium.conductors.plan import parse, read_workflow
from podium.core.pool import Pool, WorkerProfile

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "plan-format.md").read_text(
    encoding="utf-8"
)
POOL = Pool(
    tuple(WorkerProfile(name=name) for name in ("gemini-2.5-pro", "claude-sonnet-4", "gpt-5"))
)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_every_code_block_has_a_tested_language() -> None:
    languages = set(re.findall(r"^```(\S*)\n", PAGE, re.MULTILINE)) - {""}
    assert languages == {"python", "plan", "plan-again", "json"}


def test_the_sessions_print_what_the_page_says() -> None:
    session = doctest.DocTestParser().get_doctest(
        "\n".join(blocks("python")), {}, "plan-format.md", None, 0
    )
    assert len(session.examples) > 5
    failures: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.FAIL_FAST).run(session, out=failures.append)
    assert not failures, "".join(failures)


def test_the_plans_are_well_formed() -> None:
    first, join = (parse(text, POOL, strict=True).workflow for text in blocks("plan"))
    assert first is not None
    assert join is not None
    assert first == read_workflow(json.loads(blocks("json")[0]), POOL)
    assert join.levels == ((0, 1), (2,))


def test_the_plan_of_a_second_round_accepts() -> None:
    (text,) = blocks("plan-again")
    assert parse(text, POOL, strict=True, may_accept=True).workflow is None
