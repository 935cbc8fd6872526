from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.support import Ended, MakePool, Podium, Vendor

Talk = Callable[..., Ended]


@pytest.fixture
def talk(podium: Podium, monkeypatch: pytest.MonkeyPatch) -> Talk:
    """Hold a conversation of these lines with that pool."""

    def talk(pool: Path, *lines: str) -> Ended:
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        return podium("chat", "--pool", pool, "--conductor", "router")

    return talk


def test_a_conversation_answers_line_by_line_until_its_end(talk: Talk, make_pool: MakePool) -> None:
    ended = talk(make_pool({"a": ["first", "second"]}), "one?", "", "two?")
    assert (ended.code, ended.err) == (0, "")
    assert "\nfirst\n" in ended.out
    assert ended.out.endswith("\nsecond\n")


def test_each_question_knows_the_turns_before_it(
    podium: Podium, talk: Talk, make_pool: MakePool
) -> None:
    talk(make_pool({"a": ["first", "second"]}), "one?", "two?")
    run = podium("runs", "export", "last").json
    assert [(turn["role"], turn["parts"][0]["text"]) for turn in run["history"]] == [
        ("user", "one?"),
        ("assistant", "first"),
    ]


def test_the_last_plan_and_the_cost_so_far_can_be_asked_for(
    talk: Talk, vendor: Vendor, tmp_path: Path
) -> None:
    pool = vendor.pool("one", directory=tmp_path)
    ended = talk(pool, "/plan", "/cost", "q?", "r?", "/plan", "/cost")
    assert "there is no plan yet" in ended.complaint
    assert "0 questions, 0 calls, 0 tokens, $0\n" in ended.out
    assert "\nplan by router: 1 step, one-shot\n  0 one: r? (reads nothing)\n" in ended.out
    assert ended.out.endswith("\n2 questions, 2 calls, 30 tokens, $0.00004\n")


def test_quit_leaves_and_an_unknown_command_is_not_a_question(
    talk: Talk, vendor: Vendor, tmp_path: Path
) -> None:
    ended = talk(vendor.pool("one", directory=tmp_path), "/help", "/quit", "never asked?")
    assert ended.code == 0
    assert "/plan shows the last plan" in ended.complaint
    assert vendor.asked == []


def test_a_question_that_fails_does_not_end_the_conversation(
    podium: Podium, make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("one?\n/cost\n"))
    ended = podium("chat", "--pool", make_pool(), "--conductor", "router", "--budget-calls", "0")
    assert ended.code == 0
    assert "the cap on calls is 0" in ended.complaint
    assert ended.out.endswith("1 question, 0 calls, 0 tokens, $0\n")


def test_ctrl_c_at_the_prompt_leaves(
    podium: Podium, make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(prompt: str) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("builtins.input", interrupted)
    assert podium("chat", "--pool", make_pool()).code == 0
