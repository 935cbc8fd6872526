"""Questions to the pools that come with Podium, with the real tiny model."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.support import Podium
from podium.cli.session import OFFLINE
from podium.config.sources import DEFAULT_POOL
from support.local_weights import MODEL, smollm2

pytestmark = pytest.mark.weights

__all__ = ["smollm2"]


CHAIN = (
    "First tell me how to say tree in Esperanto, then tell me what the first letter of the answer "
    "is, and finally tell me the number of the answer in the alphabet."
)


@pytest.fixture
def at_home(home: Path, smollm2: Path) -> None:
    """The weights where the command line looks for them."""
    (home / "models").mkdir(parents=True)
    (home / "models" / smollm2.name).symlink_to(smollm2)


@pytest.mark.usefixtures("at_home")
def test_the_trained_conductor_of_the_etudes_hands_on_what_is_one_question(
    podium: Podium,
) -> None:
    ended = podium("ask", "--offline", "--pool", "etudes", "What is the capital of Japan?")
    plan, _, answer = ended.out.partition("\n\n")
    assert ended.code == 0
    assert plan.startswith("plan by model(embedded/etude-conductor): 1 step, one-shot\n")
    assert "  0 generalist: What is the capital of Japan? (reads nothing)" in plan
    assert "Tokyo" in answer
    assert ended.err == ""


@pytest.mark.usefixtures("at_home")
def test_questions_of_several_skills_become_a_step_each(
    podium: Podium,
) -> None:
    run = podium("ask", "--offline", "--pool", "etudes", "--json", CHAIN).json
    assert run["answer"] == "1"
    assert [(step["worker"], step["access"], step["reply"]) for step in run["steps"]] == [
        ("translation", [], "arbo"),
        ("words", [0], "A"),
        ("codes", [1], "1"),
    ]


@pytest.fixture
def default_is_tiny(at_home: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The default pool as it is, but over the tiny model."""
    text = DEFAULT_POOL.read_text("utf-8").replace("qwen2.5-coder-1.5b-instruct", MODEL)
    assert MODEL in text
    (tmp_path / "default.toml").write_text(text, "utf-8")
    monkeypatch.setattr("podium.config.sources.DEFAULT_POOL", tmp_path / "default.toml")


@pytest.mark.usefixtures("default_is_tiny")
def test_without_key_and_file_the_question_goes_to_the_model_directly(podium: Podium) -> None:
    ended = podium("ask", "--json", "--offline", "--rounds", "2", "What is the capital of Japan?")
    assert ended.complaint == OFFLINE
    run = ended.json
    assert (run["status"], run["tier"]) == ("answered", "podium")
    assert "Tokyo" in run["answer"]
    assert [step["worker"] for step in run["steps"]] == ["qwen2.5-coder"]
    assert run["usage"]["orchestration_output_tokens"] == 0


@pytest.mark.usefixtures("default_is_tiny")
def test_the_default_pool_plans_nothing_at_the_highest_tier_either(podium: Podium) -> None:
    run = podium("ask", "--json", "--offline", "--tier", "ultra", "Solve 2 + 2.").json
    assert len(run["steps"]) == 1
    assert run["usage"]["orchestration_output_tokens"] == 0
