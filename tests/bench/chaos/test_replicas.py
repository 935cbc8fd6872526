"""Servers that are killed under load; and the judgement of it, tried on what is planted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.chaos import replicas
from benchmarks.chaos.replicas import (
    INNER,
    CappedKey,
    EndedQuestion,
    Judge,
    Kills,
    Load,
    Response,
    measure_replicas,
    post,
    write_configuration,
)
from benchmarks.chaos.report import ChaosRow
from benchmarks.chaos.upstream import ANSWER, CallCounts, StepName, chaos_upstream, read_counts
from benchmarks.chaos.workload import cost_of, mark_of
from benchmarks.postgres import programs
from podium.config import discover_settings
from podium.core.errors import ConfigError
from podium.core.request import Usage
from podium.core.run import Attempt, Run, RunStatus
from podium.core.workflow import Step
from support.postgres import MISSING
from support.runs_on_record import run_with_calls

MARK = "chaos-small-00-00000"
KEY = CappedKey("small", "key_1", "pk_1", cap_usd=1.0)
FIRST, SECOND = StepName(MARK, "inner-0"), StepName(MARK, "inner-1")
ANSWERED = EndedQuestion(MARK, KEY, "42", is_refused=False, seconds=0.1, tries=1)


def a_run(status: RunStatus = "answered", answer: str | None = "42") -> Run:
    """A run of one step, which took one call."""
    call = Attempt("inner-0", Usage(1, 1, 0, 0, 0), cost_of(MARK), 0.0, 1.0)
    asked, step = f"{MARK}: what holds?", Step("inner-0", "Do it")
    return run_with_calls("run_1", (step, (call,)), question=asked, status=status, answer=answer)


def judged(
    ended: Sequence[EndedQuestion] = (ANSWERED,),
    kept: Sequence[Run] = (a_run(),),
    asked: Mapping[StepName, int] | None = None,
    cut_off: Mapping[StepName, int] | None = None,
    kills: Kills | None = None,
    charged: float | None = None,
    key: CappedKey = KEY,
) -> ChaosRow:
    """All is well, but for what is given."""
    counts = CallCounts({FIRST: 1} if asked is None else asked, cut_off or {})
    charges = {KEY.key_id: cost_of(MARK) if charged is None else charged}
    judge = Judge(ended, {MARK: kept} if kept else {}, counts, kills or Kills(), charges)
    return judge.row([key], 1.0)


def test_nothing_is_broken_where_all_is_well() -> None:
    assert judged().holds


def test_a_question_that_was_answered_without_a_run_that_says_so_is_lost() -> None:
    assert judged(kept=()).lost == 1
    assert judged(kept=[a_run(answer="43")]).lost == 1


def test_a_question_without_an_end_is_stuck_and_one_that_was_refused_is_not() -> None:
    assert judged([replace(ANSWERED, answer=None)]).stuck == 1
    refused = judged([replace(ANSWERED, answer=None, is_refused=True)])
    assert refused.stuck == 0
    assert refused.holds


def test_a_question_that_was_run_twice_is_reported() -> None:
    assert "1 questions have more than one run" in judged(kept=[a_run(), a_run()]).broken


def test_a_run_that_was_never_ended_or_taken_over_is_reported() -> None:
    left = judged(kept=[a_run("running", None)], kills=Kills(abandoned=1))
    assert left.broken == ("1 runs of the store did not end", "1 runs were not taken up in time")


def test_a_repeated_call_is_found_unless_a_kill_interrupted_it() -> None:
    assert judged(asked={FIRST: 2}).repeated_steps == 1
    assert judged(asked={FIRST: 2}, cut_off={FIRST: 1}).repeated_steps == 0
    assert judged(asked={FIRST: 2}, kills=Kills(hit=Counter({MARK: 1}))).repeated_steps == 0


def test_a_step_on_record_that_is_asked_again_is_found_although_its_server_was_killed() -> None:
    kills = Kills(hit=Counter({MARK: 1}))
    kills.note([FIRST], {FIRST: 1})
    assert judged(asked={FIRST: 1, SECOND: 2}, kills=kills).repeated_steps == 0
    assert judged(asked={FIRST: 2}, kills=kills).repeated_steps == 1


def test_a_key_that_was_charged_twice_or_not_at_all_is_found() -> None:
    assert judged(charged=2 * cost_of(MARK)).usage_mismatch == 1
    assert judged(charged=0.0).usage_mismatch == 1


def test_a_key_may_pass_its_cap_by_calls_in_flight_and_no_more() -> None:
    poor = replace(KEY, cap_usd=0.0)
    explained = replicas.CLIENTS_A_KEY
    runs = [a_run()] * explained
    hit = Kills(hit=Counter({MARK: 1}))
    assert judged(kept=runs, asked={FIRST: explained}, key=poor).budget_overruns == 0
    runs.append(a_run())
    assert judged(kept=runs, asked={FIRST: explained + 1}, key=poor).budget_overruns == 1
    lost = judged(kept=runs[1:], asked={FIRST: explained + 1}, key=poor, kills=hit)
    assert lost.budget_overruns == 0  # a kill hid that call


def unrecorded(calls: int, hits: int) -> Judge:
    """So many calls without a record of any, of a question that was hit so often by kills."""
    return Judge([], {}, CallCounts({FIRST: calls}, {}), Kills(hit=Counter({MARK: hits})), {})


def test_calls_on_no_record_are_an_overrun_unless_kills_can_have_hidden_them() -> None:
    poor = replace(KEY, cap_usd=0.0)
    in_flight = replicas.CLIENTS_A_KEY
    assert not unrecorded(in_flight, hits=0).spending(poor).overran
    assert unrecorded(in_flight + 1, hits=0).spending(poor).overran
    for hits in (1, 3):
        hidden = hits * len(INNER)
        assert not unrecorded(in_flight + hidden, hits).spending(poor).overran
        assert unrecorded(in_flight + hidden + 1, hits).spending(poor).overran


def test_a_kill_hides_calls_of_the_question_that_it_hit_and_of_no_other() -> None:
    poor = replace(KEY, cap_usd=0.0)
    elsewhere = Kills(hit=Counter({"chaos-small-00-00001": 9}))
    asked = CallCounts({FIRST: replicas.CLIENTS_A_KEY + 1}, {})
    assert Judge([], {}, asked, elsewhere, {}).spending(poor).overran


def test_a_kill_explains_no_calls_that_are_on_record() -> None:
    poor = replace(KEY, cap_usd=0.0)
    calls = replicas.CLIENTS_A_KEY + 1
    judge = replace(unrecorded(calls, hits=9), kept={MARK: [a_run()] * calls})
    assert judge.spending(poor).overran


async def test_a_client_asks_on_with_the_same_key_of_the_request_until_there_is_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported: list[Response | Exception] = [
        ConnectionResetError("gone"),
        Response(503, error="starting"),
        Response(200, "4", error="the stream broke off"),
        Response(200, "42"),
    ]
    keys: list[str] = []

    async def post(_: int, __: object, headers: Mapping[str, str], ___: float) -> Response:
        keys.append(headers["idempotency-key"])
        result = reported.pop(0)
        if isinstance(result, Exception):
            raise result
        load.is_over = True
        return result

    class Somewhere:
        port = 1

    monkeypatch.setattr("benchmarks.chaos.replicas.post", post)
    monkeypatch.setattr("benchmarks.chaos.replicas.BETWEEN_TRIES_SECONDS", 0.0)
    load = Load([Somewhere()], seed=1)  # type: ignore[list-item]
    await load.keep_asking(0, KEY)
    assert keys == [MARK] * 4
    (ended,) = load.ended
    assert (ended.answer, ended.tries, ended.is_stuck) == ("42", 4, False)


async def test_a_client_with_a_spent_key_is_refused_and_not_stuck(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def post(*_: object) -> Response:
        load.is_over = True
        return Response(402, error="the key's budget is spent")

    class Somewhere:
        port = 1

    monkeypatch.setattr("benchmarks.chaos.replicas.post", post)
    monkeypatch.setattr("benchmarks.chaos.replicas.POOR_SECONDS", 0.0)
    load = Load([Somewhere()], seed=1)  # type: ignore[list-item]
    await load.keep_asking(0, KEY)
    assert load.ended[0].is_refused


@pytest.mark.skipif(programs() is None, reason=MISSING)
async def test_no_question_is_lost_or_run_twice_while_servers_are_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replicas, "REPLICAS", 2)
    monkeypatch.setattr(replicas, "CAPS_USD", {"ample": 1.0, "tiny": 0.0008})
    monkeypatch.setattr(replicas, "BETWEEN_KILLS_SECONDS", 0.8)
    row = await measure_replicas(1.0, seed=1)
    assert row.holds, row
    assert row.figures["kills"] != 0
    assert row.runs >= 8


QUESTION = "chaos-000000: what holds?"


async def test_the_servers_configuration_can_be_read(tmp_path: Path) -> None:
    write_configuration(tmp_path, 9, "postgresql://postgres@/postgres")
    settings = await discover_settings({}, config=tmp_path / "podium.toml")
    assert set(settings.pool.names) == set(INNER)


def test_a_question_without_a_mark_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected a question with a mark"):
        mark_of("why?")


async def test_the_upstream_counts_what_it_is_asked_by_mark_and_model() -> None:
    async with chaos_upstream() as port:
        for stream in (False, True):
            document = {
                "model": "inner-0",
                "messages": [{"role": "user", "content": QUESTION}],
                "stream": stream,
            }
            assert await post(port, document, {}, 10) == Response(200, ANSWER)
        assert (await read_counts(port)).steps == {StepName("chaos-000000", "inner-0"): 2}


async def test_a_request_with_a_partial_answer_gets_the_rest() -> None:
    async with chaos_upstream() as port:
        begun = ANSWER[:9]
        messages = [
            {"role": "user", "content": MARK},
            {"role": "assistant", "content": begun},
            {"role": "user", "content": "go on"},
        ]
        for stream in (False, True):
            document = {"model": "first", "messages": messages, "stream": stream}
            assert begun + (await post(port, document, {}, 10)).text == ANSWER
