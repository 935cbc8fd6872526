from __future__ import annotations

import pytest

from cli.support import Podium
from podium.cli.output import CALLED_AS, with_program_name


def test_hints_name_the_program_as_it_was_called(
    podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert podium("keys", "list").complaint.endswith("create one with: podium keys create NAME")
    monkeypatch.setenv(CALLED_AS, "./podium")
    assert podium("keys", "list").complaint.endswith("create one with: ./podium keys create NAME")
    assert podium("ask", "one", "two").complaint.endswith("(two); see ./podium ask --help")
    assert podium("ask", "--help").out.startswith("Usage: ./podium ask ")
    assert "; ./podium models pull NAME" in podium("models", "list").out


def test_a_path_that_a_shell_would_take_apart_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CALLED_AS, "my clone/podium")
    assert with_program_name("podium doctor says it") == "'my clone/podium' doctor says it"


@pytest.mark.parametrize(
    "text",
    ["podium.toml", "podium askew", "./podium ask", "a podium of three", "podium-mini runs it"],
)
def test_other_texts_stay_unchanged(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CALLED_AS, "elsewhere/podium")
    assert with_program_name(text) == text
