from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.support import RULES, MakePool, Podium
from podium._util.files import lock_file
from podium.cli import eval_session
from podium.cli.eval_session import EvalOptions, EvalSession
from podium.cli.options import PoolOptions
from podium.core.pool import WorkerProfile
from podium_lab.etudes import ROLES


def test_an_evaluation_leaves_no_runs_in_the_store_but_replies_in_the_cache(
    podium: Podium, role_pool: Path, home: Path
) -> None:
    podium("eval", "run", "etudes", "--pool", role_pool, "--limit", "2")
    left = [path.relative_to(home) for path in home.rglob("*") if path.is_file()]
    assert left == [Path("cache", "evaluations", "replies.sqlite3")]
    assert podium("runs", "list", "--json").json == []


def test_a_fresh_evaluation_leaves_nothing_at_all(
    podium: Podium, role_pool: Path, home: Path
) -> None:
    command = ("eval", "run", "etudes", "--pool", role_pool, "--limit", "2", "--fresh")
    for _ in range(2):
        assert "calls to workers: 2\n" in podium(*command).err
    assert not [path for path in home.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    "refused",
    [
        ("none.jsonl", "--strategy", "best-single"),
        ("etudes", "--oracle", "--strategy", "bestsingle"),
    ],
)
def test_an_evaluation_that_is_refused_leaves_no_directory(
    podium: Podium, refused: tuple[str, ...], make_pool: MakePool
) -> None:
    Path("measured").mkdir()
    pool = () if "--oracle" in refused else ("--pool", make_pool())
    for output in ("new/mine", "measured"):
        ended = podium("eval", "run", *refused, *pool, "--output", output)
        assert ended.code == 2, ended.err
    assert not Path("new").exists()
    assert not list(Path("measured").iterdir())


def test_the_conductors_name_is_kept_for_the_report(podium: Podium) -> None:
    ended = podium(
        *("eval", "run", "etudes", "--oracle", "--limit", "2", "--conductor", "rules"),
        *("--strategy", "conductor", "--output", "out"),
    )
    assert ended.code == 0, ended.err
    begun = json.loads(Path("out/evaluation.json").read_text("utf-8"))
    assert (begun["conductor"], begun["baseline_conductor"]) == ("rules", None)


def test_the_same_command_again_asks_no_worker_anything(podium: Podium) -> None:
    command = (
        *("eval", "run", "etudes", "--oracle", "--limit", "10", "--seed", "7", "--json"),
        *("--strategy", "ideal,best-single,moa,reflection,majority,random"),
    )
    first, second = podium(*command), podium(*command)
    assert "calls to workers" in first.err
    assert "calls to workers: none" in second.err
    tables = [first.json, second.json]
    for row in (row for table in tables for row in table["rows"]):
        row.pop("seconds")  # what a kept reply would have taken is not known
    assert tables[0] == tables[1]


def test_with_a_cache_the_same_command_makes_no_call_again(podium: Podium, tmp_path: Path) -> None:
    """Scripted workers say another thing each time, unless they are not asked."""
    pool = tmp_path / "changing.toml"
    workers = (
        f'[[worker]]\nname = "{role}"\nprovider = "scripted"\n'
        f"options = {{ reply = {json.dumps([f'{role} {n}' for n in range(9)])} }}\n"
        for role in ROLES
    )
    pool.write_text(RULES + "".join(workers), "utf-8")
    cache, outputs = tmp_path / "replies.sqlite3", []
    for number in range(2):
        output = tmp_path / str(number)
        podium(
            *("eval", "run", "etudes", "--pool", pool, "--limit", "3", "--cache", cache),
            *("--strategy", "moa", "--output", output, "--concurrency", "1"),
        )
        lines = (output / "moa-drawn-system.jsonl").read_text("utf-8").splitlines()
        outputs.append([json.loads(line)["run"]["answer"] for line in lines])
    assert outputs[0] == outputs[1]
    assert any(answer.endswith(" 3") for answer in outputs[0])


def test_samples_and_summary_are_written_where_asked(
    podium: Podium, role_pool: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    ended = podium(
        *("eval", "run", "etudes", "--pool", role_pool, "--limit", "3", "--json"),
        *("--output", output),
    )
    assert json.loads((output / "summary.json").read_text("utf-8")) == ended.json
    assert len((output / "conductor.jsonl").read_text("utf-8").splitlines()) == 3
    other = podium("eval", "run", "etudes", "--pool", role_pool, "--output", output)
    assert other.code == 2
    assert "its limit is 3, expected 100; name a new directory" in other.complaint


def test_an_evaluation_continues_in_its_directory_with_further_strategies_and_repeats(
    podium: Podium, role_pool: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    command = ("eval", "run", "etudes", "--pool", role_pool, "--limit", "3", "--output", output)
    podium(*command, "--strategy", "single:words")
    lines = (output / "single-words.jsonl").read_text("utf-8")
    ended = podium(*command, "--strategy", "single:words,single:lists", "--repeats", "2", "--json")
    assert ended.code == 0
    assert (output / "single-words.jsonl").read_text("utf-8").startswith(lines)
    assert [row["samples"] for row in ended.json["rows"]] == [6, 6]
    assert (ended.json["n"], ended.json["repeats"]) == (3, 2)


async def test_two_evaluations_do_not_write_to_one_directory(
    start: Callable[..., subprocess.Popen[str]], role_pool: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    output.mkdir()
    async with lock_file(output / ".lock"):
        process = start("eval", "run", "etudes", "--pool", role_pool, "--output", output)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    hint = "wait for it, or choose another one"
    assert err == f"podium: another evaluation is writing to {output}; {hint}\n"


@pytest.mark.parametrize(
    ("suite", "choice", "oracle", "pool"),
    [
        ("etudes", PoolOptions(), False, "etudes"),
        ("etudes", PoolOptions(), True, None),
        ("etudes", PoolOptions(pool=Path("pools/mine.toml")), True, "mine.toml"),
        ("etudes", PoolOptions(config=Path("podium.toml")), False, None),
        ("gsm8k:test", PoolOptions(pool=Path("pools/mine.toml")), False, "mine.toml"),
        ("gsm8k:test", PoolOptions(), False, None),
    ],
)
def test_the_pool_is_called_by_its_file_where_one_was_chosen(
    suite: str, choice: PoolOptions, oracle: bool, pool: str | None
) -> None:
    given = EvalOptions(oracle=oracle)
    session = EvalSession(pool_options=choice, eval_options=given, suite=suite)
    assert session.pool == pool


@pytest.mark.parametrize(
    ("providers", "has_card", "at_once"),
    [
        (("transformers",), True, 1_000),
        (("transformers",), False, 32),  # a thousand would wait until they are out of time
        (("transformers", "python"), True, 1_000),  # a tool has limits of its own
        (("transformers", "llamacpp"), True, 4),
        (("openai",), False, 8),
    ],
    ids=str,
)
def test_concurrency_follows_the_worker(
    monkeypatch: pytest.MonkeyPatch, providers: tuple[str, ...], has_card: bool, at_once: int
) -> None:
    monkeypatch.setattr(eval_session, "_has_gpu", lambda: has_card)
    profiles = [WorkerProfile(name="one", provider=name) for name in providers]
    workers = [SimpleNamespace(profile=profile) for profile in profiles]
    settings: Any = SimpleNamespace(workers=workers)
    usual = EvalSession(pool_options=PoolOptions(), eval_options=EvalOptions(), suite="s")
    assert usual._concurrency(settings) == at_once
    three = replace(usual, eval_options=EvalOptions(concurrency=3))
    assert three._concurrency(settings) == 3


def test_an_unknown_suite_is_refused_before_anything_is_downloaded(
    podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def download(*_: object, **__: object) -> None:
        raise AssertionError("nothing may be downloaded")

    monkeypatch.setattr(eval_session, "fetch_weights", download)
    ended = podium("eval", "run", "nope", "--strategy", "best-single")
    assert ended.code == 2
    assert ended.complaint.startswith(
        "suite not found: 'nope'; expected one of everyday-100, etudes, "
    )
