from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.support import SCRIPTED_POOL, MakePool, Podium, Vendor

JAPAN = "What is the capital of Japan?"
COMPARE = "Compare GPT-5 and Claude Sonnet 4 for code generation tasks"
PRIMES = (
    "Implement an efficient algorithm to find all prime numbers up to N using a segmented sieve"
)


@pytest.mark.parametrize(
    ("question", "shape", "steps"),
    [
        (JAPAN, "one-shot", [("scripted-lead", [])]),
        (
            COMPARE,
            "fan-out/join",
            [("scripted-analyst", []), ("scripted-builder", []), ("scripted-lead", [0, 1])],
        ),
        (
            PRIMES,
            "chain",
            [("scripted-analyst", []), ("scripted-builder", [0]), ("scripted-lead", [0, 1])],
        ),
    ],
)
def test_the_proof_of_concepts_three_questions_give_its_three_topologies(
    podium: Podium, question: str, shape: str, steps: list[tuple[str, list[int]]]
) -> None:
    ended = podium("ask", "--pool", SCRIPTED_POOL, "--conductor", "rules", "--json", question)
    assert ended.code == 0
    assert [round_["shape"] for round_ in ended.json["rounds"]] == [shape]
    assert [(step["worker"], step["access"]) for step in ended.json["steps"]] == steps


def test_json_is_the_object_that_is_specified_and_nothing_else(podium: Podium) -> None:
    ended = podium("ask", "--pool", SCRIPTED_POOL, "--json", "--budget-calls", "9", COMPARE)
    document = ended.json
    assert ended.err == ""
    assert set(document) == {
        "run_id",
        "question",
        "answer",
        "status",
        "error",
        "tier",
        "conductor",
        "rounds",
        "steps",
        "usage",
        "cost_usd",
        "budget",
        "guardrails",
        "blocked_by",
        "guardrail_checks",
    }
    assert set(document["steps"][0]) == {
        "round",
        "index",
        "worker",
        "subtask",
        "access",
        "status",
        "reply",
        "error",
        "usage",
        "cost_usd",
        "started_ms",
        "finished_ms",
    }
    assert set(document["usage"]) == {
        "input_tokens",
        "output_tokens",
        "cached_input_tokens",
        "reasoning_tokens",
        "orchestration_input_tokens",
        "orchestration_output_tokens",
        "total_tokens",
        "cache_hit_rate",
        "orchestration_cache_hit_rate",
    }
    assert (document["question"], document["status"]) == (COMPARE, "answered")
    assert document["answer"] == document["steps"][-1]["reply"]
    assert (document["budget"]["calls"], document["budget"]["spent"]["calls"]) == (9, 3)


def test_without_a_terminal_plan_steps_and_answer_are_lines(
    podium: Podium,
) -> None:
    ended = podium("ask", "--pool", SCRIPTED_POOL, COMPARE)
    lines = ended.out.splitlines()
    assert ended.code == 0
    assert lines[0] == "plan by rules: 3 steps, fan-out/join"
    assert lines[3].startswith("  2 scripted-lead: ")
    assert lines[3].endswith("(reads 0, 1)")
    assert lines[4].startswith("step 0 scripted-analyst: done, ")
    assert lines[7].startswith("answered: 3 calls, ")
    assert lines[8:] == [
        "",
        "The answer, after reading all that I was shown: both views hold, and they agree.",
    ]


def test_quiet_prints_the_answer_and_nothing_else(podium: Podium, make_pool: MakePool) -> None:
    ended = podium("ask", "-q", "--pool", make_pool(), "--conductor", "router", JAPAN)
    assert (ended.code, ended.out, ended.err) == (0, "42\n", "")


def test_a_dash_reads_the_question_from_standard_input(
    podium: Podium, make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"  {JAPAN}\n"))
    ended = podium("ask", "--json", "--pool", make_pool(), "--conductor", "router", "-")
    assert ended.json["question"] == JAPAN


@pytest.mark.parametrize(
    ("question", "reason"), [("  ", "the question is empty"), ("\udcff", "is not UTF-8 text")]
)
def test_an_invalid_question_is_refused(
    podium: Podium, make_pool: MakePool, question: str, reason: str
) -> None:
    ended = podium("ask", "--pool", make_pool(), question)
    assert ended.code == 2
    assert reason in ended.complaint


def test_replies_cannot_control_the_terminal(podium: Podium, make_pool: MakePool) -> None:
    pool = make_pool({"evil": "\x1b]0;owned\x07\x1b[2Jall is [red]well[/red]\u202e\x9b"})
    plain = podium("ask", "--pool", pool, "--conductor", "router", "\x1b[31mred?")
    assert "\x1b" not in plain.out
    assert plain.out.endswith("\nall is [red]well[/red]\n")
    whole = podium("ask", "--json", "--pool", pool, "--conductor", "router", "q?")
    assert not {"\x1b", "\x9b", "\u202e"} & set(whole.out)
    assert whole.json["answer"] == "\x1b]0;owned\x07\x1b[2Jall is [red]well[/red]\u202e\x9b"


def test_tiers_and_limits_reach_the_run(podium: Podium) -> None:
    ended = podium("ask", "--json", "--pool", SCRIPTED_POOL, "--tier", "mini", COMPARE)
    assert (ended.json["tier"], ended.json["conductor"]) == ("mini", "router")
    assert len(ended.json["steps"]) == 1
    ended = podium("ask", "--json", "--pool", SCRIPTED_POOL, "--max-steps", "2", COMPARE)
    assert len(ended.json["steps"]) == 2
    ended = podium("ask", "--json", "--pool", SCRIPTED_POOL, "--rounds", "2", COMPARE)
    assert [round_["accepts_answer"] for round_ in ended.json["rounds"]] == [False, True]


def test_a_model_can_be_named_to_plan(podium: Podium, make_pool: MakePool) -> None:
    plan = 'model_id = [1]\nsubtasks = ["say it"]\naccess_list = [[]]'
    pool = make_pool({"planner": plan, "speaker": "said"})
    ended = podium("ask", "--json", "--pool", pool, "--conductor", "planner", "q?")
    assert (ended.json["conductor"], ended.json["answer"]) == ("model(planner)", "said")
    assert ended.json["usage"]["orchestration_output_tokens"] > 0


def test_a_conductor_that_is_unknown_is_refused_with_the_nearest_name(
    podium: Podium, make_pool: MakePool
) -> None:
    ended = podium("ask", "--pool", make_pool(), "--conductor", "rulez", "q?")
    assert ended.code == 2
    assert "did you mean 'rules'?" in ended.complaint


def test_a_model_outside_the_pool_can_plan_and_needs_its_own_key(
    podium: Podium, make_pool: MakePool
) -> None:
    ended = podium("ask", "--pool", make_pool(), "--conductor", "openai/gpt-5", "q?")
    assert ended.code == 2
    assert "worker 'openai/gpt-5' needs a key for openai; set OPENAI_API_KEY" in ended.complaint


def test_an_excluded_worker_does_not_plan_either(
    podium: Podium, vendor: Vendor, tmp_path: Path
) -> None:
    pool = vendor.pool("first", "second", directory=tmp_path)
    usual = podium("ask", "--json", "--pool", pool, "--conductor", "model", "q?")
    assert usual.json["conductor"] == "model(first)"
    vendor.asked.clear()
    without = podium(
        "ask", "--json", "--pool", pool, "--conductor", "model", "--exclude", "first", "q?"
    )
    assert without.json["conductor"] == "model(second)"
    assert set(vendor.asked) == {"second"}


def test_the_fixed_conductor_carries_out_the_workflow_of_the_configuration(
    podium: Podium, make_pool: MakePool, write_json: Callable[[Any], Path]
) -> None:
    write_json({"steps": [{"worker": "solver", "subtask": "say it", "access": []}]})
    pool = make_pool(head='[conductor]\nkind = "fixed"\nworkflow = "workflow.json"\n')
    for arguments in ((), ("--conductor", "fixed")):
        ended = podium("ask", "--json", "--pool", pool, "q?", *arguments)
        assert (ended.json["conductor"], ended.json["steps"][0]["subtask"]) == ("fixed", "say it")


def test_the_fixed_conductor_names_the_missing_workflow(
    podium: Podium, make_pool: MakePool
) -> None:
    ended = podium("ask", "--pool", make_pool(), "--conductor", "fixed", "q?")
    assert ended.code == 2
    assert "podium run WORKFLOW.json" in ended.complaint


def test_an_excluded_worker_is_not_asked_and_needs_no_key(
    podium: Podium, make_pool: MakePool
) -> None:
    hosted = '[[worker]]\nname = "gpt-5"\nprovider = "openai"\n'
    pool = make_pool(tail=hosted)
    missing = podium("ask", "--pool", pool, "q?", "--conductor", "rules")
    assert missing.code == 2
    assert "set OPENAI_API_KEY" in missing.complaint
    for name in ("gpt-5", "openai"):
        ended = podium("ask", "-q", "--pool", pool, "--exclude", name, "--conductor", "rules", "q?")
        assert (ended.code, ended.out) == (0, "42\n")


def test_a_misspelt_exclusion_is_refused(podium: Podium, make_pool: MakePool) -> None:
    ended = podium("ask", "--pool", make_pool(), "--exclude", "solvr", "q?")
    assert ended.code == 2
    assert "did you mean 'solver'?" in ended.complaint


def test_a_spent_budget_ends_with_its_own_code_and_names_the_cap(
    podium: Podium, make_pool: MakePool
) -> None:
    ended = podium("ask", "--pool", make_pool(), "--conductor", "rules", "--budget-calls", "0", "q")
    assert ended.code == 3
    assert "the cap on calls is 0; raise that cap to resume: podium runs resume" in ended.complaint
    assert ended.complaint.endswith(" --budget-calls N")


def test_a_partial_answer_is_an_answer_with_a_warning(podium: Podium) -> None:
    ended = podium("ask", "--quiet", "--pool", SCRIPTED_POOL, "--budget-calls", "1", COMPARE)
    assert ended.code == 0
    assert ended.out.startswith("The technical view")
    assert ended.complaint.startswith("partial answer, the best before the run failed: ")
    assert ended.complaint.endswith(" --budget-calls N")


@pytest.mark.parametrize(
    ("status", "helps"), [(401, False), (404, False), (400, False), (503, True)]
)
def test_going_on_is_suggested_only_where_it_may_help(
    podium: Podium, vendor: Vendor, tmp_path: Path, status: int, helps: bool
) -> None:
    vendor.status = status
    pool = vendor.pool("one", directory=tmp_path)
    with pool.open("a") as file:
        file.write("[retry]\nattempts = 1\n")
    ended = podium("ask", "-q", "--pool", pool, "--conductor", "router", "q?")
    assert ended.code == 1
    assert f" answered HTTP {status}" in ended.complaint
    assert ("podium runs resume" in ended.complaint) is helps


def test_a_worker_that_is_asked_again_is_complained_of_once(
    podium: Podium, vendor: Vendor, tmp_path: Path
) -> None:
    vendor.status = 503
    pool = vendor.pool("one", "two", directory=tmp_path)
    text = pool.read_text("utf-8").replace('name = "one"\n', 'name = "one"\nfallback = "two"\n')
    pool.write_text(f"{text}[retry]\nattempts = 3\ninitial_wait_seconds = 0.001\n", "utf-8")
    ended = podium("ask", "--pool", pool, "--conductor", "router", "q?")
    again = [
        line for line in ended.out.splitlines() if " falls back to " in line or " retries " in line
    ]
    assert again == [
        "step 0 retries one in 0.0 s (call 2)",
        "step 0 retries one in 0.0 s (call 3)",
        "step 0 falls back to two: worker 'one' (openai-compatible) answered HTTP 503: busy",
        "step 0 retries two in 0.0 s (call 2)",
        "step 0 retries two in 0.0 s (call 3)",
    ]
    assert ended.out.count("answered HTTP 503") == 2


def test_a_worker_that_cannot_be_reached_fails_the_run_in_one_line(
    podium: Podium, tmp_path: Path
) -> None:
    pool = tmp_path / "nobody.toml"
    pool.write_text(
        "[retry]\nattempts = 1\n[[worker]]\n"
        'name = "absent"\nprovider = "openai-compatible"\nbase_url = "http://127.0.0.1:1/v1"\n'
    )
    ended = podium("ask", "--quiet", "--pool", pool, "--conductor", "router", "q?")
    assert (ended.code, ended.out) == (1, "")
    assert "no answer: step 0 (absent) failed: " in ended.complaint
    assert "127.0.0.1:1" in ended.complaint


def test_a_step_that_failed_is_mentioned_even_when_there_is_an_answer(
    podium: Podium, vendor: Vendor, tmp_path: Path
) -> None:
    pool = vendor.pool("lead", "second", directory=tmp_path)
    with pool.open("a") as file:
        file.write(
            '[[worker]]\nname = "absent"\nprovider = "openai-compatible"\n'
            'base_url = "http://127.0.0.1:1/v1"\n[retry]\nattempts = 1\n'
        )
    ended = podium("ask", "--pool", pool, "--conductor", "rules", "Compare a and b")
    assert ended.code == 0
    assert "step 1 absent: failed: " in ended.out
    assert ended.complaint.startswith("answered, with an error: step 1 (absent)")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["ask"], "QUESTION"),
        (["ask", "q", "--nonsense"], "--nonsense"),
        (["ask", "q", "--tier", "huge"], "'--tier': 'huge' is not one of 'mini', "),
        (["ask", "q", "--max-steps", "0"], "--max-steps"),
        (["ask", "q", "--budget-usd", "inf"], "expected a finite number, got inf"),
        (["ask", "q", "--budget-usd", "-1"], "--budget-usd"),
        (["asc", "q"], "did you mean 'ask'?"),
        (["ask", "tell", "me", "a", "joke"], "(me a joke); see podium ask --help"),
        (["ask", "q", "--pool", "nowhere.toml"], "nowhere.toml: there is no such file"),
        (["ask", "q", "--pool", "nosuch"], "use one of default, etudes, scripted, tiny"),
        (["ask", "q", "--pool", "tinny"], "no such file or pool; did you mean 'tiny'?"),
    ],
)
def test_wrong_usage_gets_one_line_and_code_2(
    podium: Podium, arguments: list[str], reason: str
) -> None:
    ended = podium(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert reason in ended.complaint


def test_a_configuration_that_only_the_environment_names_is_complained_of_by_its_variable(
    podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_CONFIG", "nowhere.toml")
    for arguments in (("ask", "q?"), ("runs", "list"), ("pool", "list")):
        ended = podium(*arguments)
        assert ended.code == 2
        assert ended.complaint.startswith("PODIUM_CONFIG names nowhere.toml, which does not exist")


def test_an_unknown_key_in_the_configuration_is_named_with_the_nearest(
    podium: Podium, make_pool: MakePool
) -> None:
    ended = podium("ask", "--pool", make_pool(head="[conductor]\nmax_stepz = 3\n"), "q?")
    assert ended.code == 2
    assert "unknown key conductor.max_stepz; did you mean 'max_steps'?" in ended.complaint


def test_a_cap_on_money_over_an_unknown_price_is_refused(
    podium: Podium, vendor: Vendor, tmp_path: Path
) -> None:
    pool = tmp_path / "unpriced.toml"
    pool.write_text(
        f'[[worker]]\nname = "x"\nprovider = "openai-compatible"\nbase_url = "{vendor.url}"\n'
    )
    capped = ("ask", "--pool", pool, "--conductor", "router", "--budget-usd", "1", "q?")
    ended = podium(*capped)
    assert ended.code == 2
    assert "no price is known for x" in ended.complaint
    assert vendor.asked == []
    assert podium(*capped, "--allow-unpriced").code == 0
    assert vendor.asked == ["x"]


def test_money_and_tokens_are_what_the_vendor_reported(
    podium: Podium, vendor: Vendor, tmp_path: Path
) -> None:
    pool = vendor.pool("one", directory=tmp_path)
    ended = podium("ask", "--json", "--pool", pool, "--conductor", "router", "q?")
    assert ended.json["usage"]["total_tokens"] == 15
    assert ended.json["cost_usd"] == pytest.approx((10 * 1.0 + 5 * 2.0) / 1_000_000)


def test_an_unexpected_error_is_one_line_too(
    podium: Podium, make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr("podium.cli.session._print_result", broken)
    ended = podium("ask", "--pool", make_pool(), "--conductor", "router", "q?")
    assert ended.code == 1
    assert "RuntimeError: boom; run it again with PODIUM_DEBUG=1" in ended.complaint
    monkeypatch.setenv("PODIUM_DEBUG", "1")
    ended = podium("ask", "--pool", make_pool(), "--conductor", "router", "q?")
    assert "Traceback" in ended.err


def test_guardrails_of_the_configuration_hold_on_the_command_line(
    podium: Podium, tmp_path: Path
) -> None:
    pool = tmp_path / "guarded.toml"
    text = SCRIPTED_POOL.read_text("utf-8")
    pool.write_text(f'[[guardrail]]\nkind = "redact"\nname = "privacy"\n\n{text}', "utf-8")
    ended = podium("ask", "--pool", str(pool), "Who is ada@example.com?")
    assert ended.code == 0
    result = "guardrail privacy redacted the question: 1 × e-mail"
    assert ended.out.splitlines()[0] == result
    run_id = podium("runs", "list", "--json").json[0]["run_id"]
    shown = podium("runs", "show", run_id).out
    assert "question: Who is [e-mail 1]?" in shown
    assert result in shown
    assert "ada@example.com" not in podium("runs", "export", run_id).out
    blocking = pool.read_text("utf-8").replace(
        'kind = "redact"', 'kind = "redact"\naction = "block"'
    )
    pool.write_text(blocking, "utf-8")
    blocked = podium("ask", "--pool", str(pool), "Who is ada@example.com?")
    assert blocked.code == 1
    assert (
        "the guardrail 'privacy' blocked the question: it contains 1 × e-mail" in blocked.complaint
    )
    assert "resume" not in blocked.complaint


def test_a_run_that_a_guardrail_blocked_is_not_resumed(
    podium: Podium, vendor: Vendor, tmp_path: Path
) -> None:
    vendor.replies["a"] = "Ask ada@example.com."
    pool = vendor.pool("a", directory=tmp_path)
    text = pool.read_text("utf-8")
    guardrail = '[[guardrail]]\nkind = "redact"\nname = "no-mail"\naction = "block"\n'
    pool.write_text(f'{guardrail}stages = ["answer"]\n\n{text}', "utf-8")
    blocked = podium("ask", "--json", "--pool", str(pool), "Who?")
    assert blocked.code == 1
    error = "the guardrail 'no-mail' blocked the answer: it contains 1 × e-mail"
    assert error in blocked.complaint
    assert blocked.json["error"] == error
    assert podium("runs", "show", "last", "--json").json["error"] == error
    assert "resume" not in blocked.complaint
    pool.write_text(text, "utf-8")
    again = podium("runs", "resume", "last", "--pool", str(pool))
    assert again.code == 2
    assert "was blocked by the guardrail 'no-mail', and stays so; ask again" in again.complaint
    assert again.out == ""
