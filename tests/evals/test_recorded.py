from __future__ import annotations

import os
from pathlib import Path

import pytest

from podium.core.errors import ConfigError, RequestRefused, UsageError
from podium.core.request import Request, system, user
from podium.evals.comparison import best_per_task
from podium.evals.evaluation import Evaluation
from podium.evals.sample import make_cases, sample_context
from podium.evals.setup import RecordedPool, is_recorded, recorded_pool
from support.recorded import UNKNOWN_TEXT, write_livecodebench, write_routellm


def measuring(pool: RecordedPool, repeats: int = 1) -> Evaluation:
    setup = pool.setup
    cases = make_cases(pool.tasks, setup.pool)
    return Evaluation(setup, cases, seed=0, concurrency=4, repeats=repeats)


async def test_ten_repeats_are_the_recorded_shares(tmp_path: Path) -> None:
    pool = recorded_pool("livecodebench-recorded", data=write_livecodebench(tmp_path))
    assert (len(pool.tasks), pool.tries) == (11, 10)
    evaluation = measuring(pool, repeats=pool.tries)
    rows = [await evaluation.row(f"single:{name}") for name in ("Ann", "Ben", "Cid")]
    expected = [(5 * 7) / 110, (5 * 9 + 6 * 1) / 110, 0]
    assert [row.accuracy.value for row in rows] == pytest.approx(expected)
    assert best_per_task(rows).accuracy.value == pytest.approx((5 * 7 + 5 * 9 + 1) / 110)


async def test_one_repeat_alone_is_a_fair_draw(tmp_path: Path) -> None:
    """Were the first answers those that passed, whoever passes once would always be right."""
    pool = recorded_pool("livecodebench-recorded", data=write_livecodebench(tmp_path))
    row = await measuring(pool).row("single:Ben")
    assert 0 < sum(sample.right for sample in row.samples) < 11


async def test_nobody_can_tell_from_a_reply_whether_it_is_right(tmp_path: Path) -> None:
    pool = recorded_pool("livecodebench-recorded", data=write_livecodebench(tmp_path))
    ann = pool.workers[0]
    request = Request((user(pool.tasks[0].question),))
    replies = []
    for repeat in range(10):
        with sample_context(repeat):
            replies.append((await ann.reply(request)).text)
    numbers = {reply.split()[1] for reply in replies}
    assert numbers == {str(number) for number in range(1, 11)}
    assert {reply.partition(" of ")[2] for reply in replies} == {
        "Ann to livecodebench/11_A, as recorded"
    }


async def test_an_outcome_that_is_missing_is_a_fault_of_that_worker(tmp_path: Path) -> None:
    pool = recorded_pool("livecodebench-recorded", data=write_livecodebench(tmp_path))
    row = await measuring(pool).row("single:Cid")
    (fault,) = [sample for sample in row.samples if sample.error is not None]
    assert fault.task == f"livecodebench/{UNKNOWN_TEXT}"
    assert "no answer of Cid" in str(fault.error)


async def test_anything_but_a_recorded_question_is_refused(tmp_path: Path) -> None:
    pool = recorded_pool("livecodebench-recorded", data=write_livecodebench(tmp_path))
    question = pool.tasks[0].question
    for messages in ((user("What else?"),), (system("Be brief."), user(question))):
        with pytest.raises(RequestRefused, match="this question has no record"):
            await pool.workers[0].reply(Request(messages))


def test_the_question_is_all_that_a_router_may_read(tmp_path: Path) -> None:
    pool = recorded_pool("livecodebench-recorded", data=write_livecodebench(tmp_path))
    task = pool.tasks[0]
    assert "print their sum" in task.question
    assert "easy" not in task.question
    assert (task.kind, task.difficulty) == ("atcoder", "easy")


def test_train_and_test_share_out_the_questions(tmp_path: Path) -> None:
    data = write_livecodebench(tmp_path)
    parts = {
        part: {task.id for task in recorded_pool(f"livecodebench-recorded:{part}", data=data).tasks}
        for part in ("train", "test")
    }
    everything = {task.id for task in recorded_pool("livecodebench-recorded", data=data).tasks}
    assert parts["train"] | parts["test"] == everything
    assert not parts["train"] & parts["test"]


def test_a_limit_draws_by_the_seed(tmp_path: Path) -> None:
    data = write_livecodebench(tmp_path)

    def drawn(seed: int) -> set[str]:
        pool = recorded_pool("livecodebench-recorded", data=data, limit=4, seed=seed)
        return {task.id for task in pool.tasks}

    assert len(drawn(0)) == 4
    assert drawn(0) == drawn(0) != drawn(1)


async def test_words_that_were_recorded_are_replied_and_graded(tmp_path: Path) -> None:
    pool = recorded_pool("gsm8k-recorded", data=write_routellm(tmp_path))
    assert [worker.profile.name for worker in pool.workers] == ["Weak", "strong"]
    reply = await pool.workers[1].reply(Request((user("Six times seven?"),)))
    assert reply.text == "It is 42."
    grader = pool.tasks[0].grader
    assert [await grader(text) for text in ("It is 42.", "It is 41.", "42")] == [True, False, False]


async def test_a_question_in_two_subjects_is_asked_once(tmp_path: Path) -> None:
    pool = recorded_pool("mmlu-recorded", data=write_routellm(tmp_path))
    assert [task.id for task in pool.tasks] == [
        "mmlu/anatomy/1",
        "mmlu/anatomy/2",
        "mmlu/virology/2",
    ]
    evaluation = measuring(pool)
    assert (await evaluation.row("single:Weak")).accuracy.value == pytest.approx(2 / 3)
    assert (await evaluation.row("single:strong")).accuracy.value == pytest.approx(2 / 3)


def test_the_directory_may_be_named_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_BENCHMARKS", str(write_routellm(tmp_path)))
    assert len(recorded_pool("gsm8k-recorded").tasks) == 2
    monkeypatch.delenv("PODIUM_BENCHMARKS")
    with pytest.raises(ConfigError, match="set PODIUM_BENCHMARKS"):
        recorded_pool("gsm8k-recorded")


def test_what_is_missing_or_broken_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown recorded suite 'livecodebench-recorded:val'"):
        recorded_pool("livecodebench-recorded:val", data=tmp_path)
    with pytest.raises(ConfigError, match="codegen_2024_02_26.json.gz in it"):
        recorded_pool("livecodebench-recorded", data=tmp_path)
    broken = tmp_path / "livecodebench_results"
    broken.mkdir()
    (broken / "codegen_2024_02_26.json").write_text('{"performances": [{"pass@1": 33}]}')
    with pytest.raises(ConfigError, match="expected the results"):
        recorded_pool("livecodebench-recorded", data=tmp_path)
    (tmp_path / "routellm_evals.zip").write_text("no archive")
    with pytest.raises(ConfigError, match="cannot be read as RouteLLM's results"):
        recorded_pool("mmlu-recorded", data=tmp_path)


def test_recorded_suites_are_known_by_their_names() -> None:
    assert is_recorded("livecodebench-recorded:test")
    assert not is_recorded("livecodebench")


@pytest.mark.skipif(
    not Path(os.environ.get("PODIUM_BENCHMARKS", ""), "livecodebench_results").is_dir(),
    reason="PODIUM_BENCHMARKS names no directory with livecodebench_results",
)
async def test_the_real_records_come_to_their_known_figures() -> None:
    pool = recorded_pool("livecodebench-recorded")
    evaluation = measuring(pool, repeats=pool.tries)
    names = [worker.profile.name for worker in pool.workers]
    rows = [await evaluation.row(f"single:{name}") for name in names]
    assert (len(rows), len(pool.tasks)) == (16, 349)
    assert 100 * max(row.accuracy.value for row in rows) == pytest.approx(41.63, abs=0.01)
    assert 100 * best_per_task(rows).accuracy.value == pytest.approx(53.75, abs=0.01)
