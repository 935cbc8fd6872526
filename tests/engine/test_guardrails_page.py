"""docs/reference/guardrails.md: its examples do what the page says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from podium.config.schema import ConfigFile
from podium.store.audit import AuditAction

DOCS = Path(__file__).parents[2] / "docs" / "reference"
PAGE = (DOCS / "guardrails.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.M)


def test_the_example_prints_what_stands_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = blocks("python")
    exec(compile(example, "guardrails.md", "exec"), {"__name__": "page"})
    result = re.findall(r"print\(.*\)  # (.*)$", example, re.M)
    assert capsys.readouterr().out.splitlines() == result


def test_the_tables_are_ones_that_a_file_may_have() -> None:
    (example,) = blocks("toml")
    tables = ConfigFile.model_validate(tomllib.loads(example)).guardrail
    assert [table.kind for table in tables] == ["redact", "grounding", "python"]


def test_the_page_on_the_audit_log_names_every_act() -> None:
    page = (DOCS / "audit.md").read_text("utf-8")
    for act in AuditAction.__args__:  # type: ignore[attr-defined]
        assert f"`{act}`" in page
