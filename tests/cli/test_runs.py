from __future__ import annotations

import json
import sqlite3
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cli.support import SCRIPTED_POOL, MakePool, Podium, Vendor, perform_by
from podium._util.process import this_process
from podium.core.errors import StoreError
from podium.core.run import RUN_VERSION, load
from podium.store.sql.run_store import SqlRunStore

QUESTION = "Compare tea and coffee"


@pytest.fixture
def asked(podium: Podium) -> str:
    """The id of a run in the store."""
    run_id: str = podium("ask", "--json", "--pool", SCRIPTED_POOL, QUESTION).json["run_id"]
    return run_id


def test_every_run_is_listed_the_newest_first(podium: Podium, asked: str) -> None:
    second = podium("ask", "--json", "--pool", SCRIPTED_POOL, "Why?").json["run_id"]
    listed = podium("runs", "list", "--json").json
    assert [run["run_id"] for run in listed] == [second, asked]
    lines = podium("runs", "list").out.splitlines()
    assert [line.split()[0] for line in lines] == [second, asked]
    assert "answered" in lines[1]
    assert QUESTION in lines[1]


def test_a_list_can_be_narrowed(podium: Podium, asked: str) -> None:
    podium("ask", "--pool", SCRIPTED_POOL, "Why?")
    for option in ("--limit", "-n"):
        assert len(podium("runs", "list", "--json", option, "1").json) == 1
    assert [run["run_id"] for run in podium("runs", "list", "--json", "--text", "TEA").json] == [
        asked
    ]
    assert podium("runs", "list", "--json", "--status", "failed").json == []
    assert podium("runs", "list", "--status", "lost").code == 2


@pytest.mark.parametrize(
    ("narrowing", "count"),
    [
        (("--tier", "mini"), 0),
        (("--worker", "nobody"), 0),
        (("--cost-from", "1000"), 0),
        (("--cost-to", "1000", "--since", "2020-01-01"), 1),
        (("--until", "2020-01-01T12:00:00"), 0),
    ],
)
def test_a_list_is_narrowed_by_what_was_done(
    podium: Podium, asked: str, narrowing: tuple[str, ...], count: int
) -> None:
    assert len(podium("runs", "list", "--json", *narrowing).json) == count


def test_the_workers_that_are_listed_find_the_run(podium: Podium, asked: str) -> None:
    (listed,) = podium("runs", "list", "--json").json
    assert listed["workers"]
    for worker in listed["workers"]:
        assert len(podium("runs", "list", "--json", "--worker", worker).json) == 1


def test_an_empty_list_says_what_to_do(podium: Podium) -> None:
    ended = podium("runs", "list")
    assert (ended.code, ended.out) == (0, "")
    assert "podium ask" in ended.complaint


@pytest.mark.parametrize("narrowing", [("--text", "zzz"), ("--status", "failed")])
def test_a_list_that_nothing_matches_says_so(
    podium: Podium, asked: str, narrowing: tuple[str, str]
) -> None:
    ended = podium("runs", "list", *narrowing)
    assert (ended.code, ended.out) == (0, "")
    assert ended.complaint.startswith("no run matches")


def test_a_run_is_not_stored_when_that_was_asked_for(podium: Podium) -> None:
    podium("ask", "--pool", SCRIPTED_POOL, "--no-store", QUESTION)
    assert podium("runs", "list", "--json").json == []


@pytest.mark.parametrize("named", ["last", "whole", "begun"])
def test_a_run_is_shown_with_its_plan_its_replies_and_its_answer(
    podium: Podium, asked: str, named: str
) -> None:
    run_id = {"last": "last", "whole": asked, "begun": asked[:12]}[named]
    ended = podium("runs", "show", run_id)
    assert ended.code == 0
    assert f"question: {QUESTION}" in ended.out
    assert "plan by rules: 3 steps, fan-out/join" in ended.out
    assert "\n  The practical view" in ended.out
    assert ended.out.rstrip().endswith("both views hold, and they agree.")


def test_show_reports_what_each_worker_was_shown_when_asked_for(podium: Podium, asked: str) -> None:
    usual, whole = podium("runs", "show", asked), podium("runs", "show", asked, "--prompts")
    prompts = [step["prompt"] for step in _exported_steps(podium, asked)]
    assert len(prompts) == 3
    for line in "\n".join(prompts).splitlines():
        assert line in whole.out
    assert "\n  prompt:\n" in whole.out
    assert "\n  prompt:\n" not in usual.out
    assert podium("runs", "show", asked, "--prompts", "--json").code == 2


def _exported_steps(podium: Podium, run_id: str) -> list[dict[str, Any]]:
    exported = podium("runs", "export", run_id).json
    return [step for round_ in exported["rounds"] for step in round_["steps"]]


def test_show_prints_the_same_object_as_ask(podium: Podium) -> None:
    asked = podium("ask", "--json", "--pool", SCRIPTED_POOL, QUESTION).json
    shown = podium("runs", "show", "last", "--json").json
    assert shown == {**asked, "feedback": None}


def test_a_run_that_is_not_there_is_a_usage_error(podium: Podium) -> None:
    ended = podium("runs", "show", "run_0")
    assert ended.code == 2
    assert "podium runs list" in ended.complaint


def test_an_exported_run_loads_again(podium: Podium, asked: str, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    ended = podium("runs", "export", asked, "--output", file)
    assert (ended.code, ended.out) == (0, "")
    run = load(json.loads(file.read_text("utf-8")))
    assert (run.id, run.question, run.version) == (asked, QUESTION, RUN_VERSION)
    assert podium("runs", "export", asked).json["id"] == asked


def test_a_file_that_cannot_be_written_is_named(podium: Podium, asked: str, tmp_path: Path) -> None:
    ended = podium("runs", "export", asked, "--output", tmp_path / "no" / "such" / "place.json")
    assert ended.code == 2
    assert "choose another file" in ended.complaint


def test_diff_says_what_differs_between_two_runs(podium: Podium, make_pool: MakePool) -> None:
    first = podium(
        "ask", "--json", "--pool", make_pool({"a": "one\ntwo"}), "--conductor", "router", "q?"
    ).json["run_id"]
    second = podium(
        "ask", "--json", "--pool", make_pool({"a": "one\nthree", "b": "x"}), "--conductor", "rules",
        "Compare q",
    ).json["run_id"]  # fmt: skip
    ended = podium("runs", "diff", first, second)
    assert ended.code == 0
    assert "question:\n  - q?\n  + Compare q\n" in ended.out
    assert "conductor:\n  - router\n  + rules\n" in ended.out
    assert "plan of round 1:" in ended.out
    assert "answer:\n" in ended.out
    assert "\n  - two\n  + three\n" in ended.out
    assert "calls:\n  - 1\n  + 3\n" in ended.out
    whats = [found["field"] for found in podium("runs", "diff", first, second, "--json").json]
    assert whats[:2] == ["question", "conductor"]
    assert "reply of step 0 in round 1" in whats


def test_a_run_does_not_differ_from_itself(podium: Podium, asked: str) -> None:
    assert podium("runs", "diff", asked, "last").out == "the two runs do not differ\n"


@pytest.mark.parametrize("named", ["last", "whole", "begun"])
def test_a_deleted_run_is_gone(podium: Podium, asked: str, named: str) -> None:
    run_id = {"last": "last", "whole": asked, "begun": asked[:12]}[named]
    ended = podium("runs", "delete", run_id)
    assert (ended.code, ended.out) == (0, f"deleted {asked}\n")
    assert podium("runs", "list", "--json").json == []
    assert podium("runs", "delete", asked).code == 2


def test_a_run_that_is_still_being_performed_is_not_deleted(
    podium: Podium, asked: str, home: Path
) -> None:
    perform_by(this_process(), home)
    ended = podium("runs", "delete", asked)
    assert ended.code == 2
    assert "is still being performed" in ended.complaint
    perform_by("", home)
    assert podium("runs", "delete", asked).code == 0


def test_a_run_whose_process_died_is_interrupted_and_says_how_to_resume(
    podium: Podium, asked: str, home: Path
) -> None:
    perform_by(this_process(), home)
    assert podium("runs", "list").out.split()[3] == "running"
    shown = podium("runs", "show", asked)
    assert "\nrunning: " in shown.out
    assert "its process is gone" not in shown.out
    assert podium("runs", "list", "--json").json[0]["is_executing"] is True
    perform_by(f"{this_process().rpartition(':')[0]}:999999999", home)
    listed = podium("runs", "list")
    assert listed.out.split()[3:5] == ["cut", "off"]
    assert listed.complaint.endswith("the next server resumes it, or podium runs resume ID")
    shown = podium("runs", "show", asked)
    assert "\ncut off: " in shown.out
    assert (
        f"its process is gone; the next server resumes it, or podium runs resume {asked}\n"
    ) in shown.out
    (listed_as,) = podium("runs", "list", "--json").json
    assert (listed_as["status"], listed_as["is_executing"]) == ("running", False)


def test_a_run_that_cannot_be_read_can_be_deleted(podium: Podium, asked: str, home: Path) -> None:
    with sqlite3.connect(home / "podium.db") as database:
        database.execute("UPDATE runs SET document = json_set(document, '$.version', 99)")
    database.close()
    assert podium("runs", "show", asked).code == 1
    assert podium("runs", "delete", asked).code == 0
    assert podium("runs", "list", "--json").json == []


def test_times_are_those_of_the_clock_on_the_wall(
    podium: Podium, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    created_at = podium("runs", "list", "--json").json[0]["created_at"]
    monkeypatch.setenv("TZ", "XYZ-5:30")
    time.tzset()
    try:
        wall = datetime.fromisoformat(created_at) + timedelta(hours=5, minutes=30)
        assert f"  {wall:%Y-%m-%d %H:%M}  " in podium("runs", "list").out
        assert f"started: {wall:%Y-%m-%d %H:%M}," in podium("runs", "show", asked).out
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_run_with_a_spent_budget_resumes_with_a_larger_one(
    podium: Podium, vendor: Vendor, tmp_path: Path
) -> None:
    pool = vendor.pool("lead", "left", "right", directory=tmp_path)
    cut = podium("ask", "--json", "--pool", pool, "--budget-calls", "2", QUESTION)
    assert cut.json["status"] == "partial"
    assert sorted(vendor.asked) == ["left", "right"]
    ended = podium("runs", "resume", "last", "--pool", pool, "--budget-calls", "3", "--json")
    assert ended.code == 0
    assert (ended.json["run_id"], ended.json["status"]) == (cut.json["run_id"], "answered")
    assert vendor.asked[2:] == ["lead"]
    assert ended.json["budget"]["spent"]["calls"] == 3


def test_a_resumed_run_shows_the_plan_it_had(
    podium: Podium, vendor: Vendor, tmp_path: Path
) -> None:
    pool = vendor.pool("lead", "left", "right", directory=tmp_path)
    podium("ask", "--pool", pool, "--budget-calls", "2", QUESTION)
    ended = podium("runs", "resume", "last", "--pool", pool, "--budget-calls", "9")
    assert ended.out.startswith("plan by rules: 3 steps, fan-out/join\n")
    assert ended.out.endswith("\nreply of lead\n")


def test_without_an_id_every_run_is_resumed_that_was_cut_off_with_its_process(
    podium: Podium, vendor: Vendor, tmp_path: Path, home: Path
) -> None:
    pool = vendor.pool("lead", "left", "right", directory=tmp_path)
    for _ in range(2):
        podium("ask", "--pool", pool, "--budget-calls", "2", QUESTION)
    perform_by("", home)
    podium("ask", "--pool", pool, "--budget-calls", "2", QUESTION)
    vendor.asked.clear()
    again = ("runs", "resume", "--pool", pool, "--budget-calls", "3", "--json")
    ended = podium(*again)
    assert ended.code == 0
    assert ended.out.count('\n  "status": "answered"') == 2
    assert vendor.asked == ["lead"] * 2, "what is done is not asked again"
    assert [run["status"] for run in podium("runs", "list", "--json").json] == [
        "partial",
        "answered",
        "answered",
    ]
    ended = podium(*again)
    assert (ended.code, ended.out) == (0, "")
    assert ended.complaint.startswith("no run was cut off")


def test_a_run_that_cannot_be_resumed_does_not_block_others(
    podium: Podium, vendor: Vendor, tmp_path: Path, home: Path
) -> None:
    for third in ("right", "gone", "right"):
        pool = vendor.pool("lead", "left", third, directory=tmp_path)
        podium("ask", "--pool", pool, "--budget-calls", "2", QUESTION)
    perform_by("", home)
    last, lost, unreadable = (run["run_id"] for run in podium("runs", "list", "--json").json)
    with sqlite3.connect(home / "podium.db") as database:
        newer = "UPDATE runs SET document = json_set(document, '$.version', 99) WHERE id = ?"
        database.execute(newer, (unreadable,))
    database.close()
    ended = podium("runs", "resume", "--pool", pool, "--budget-calls", "3", "--json")
    assert ended.code == 1, "as the first that was not answered"
    assert ended.json["run_id"] == last
    assert f"{unreadable} was not resumed: " in ended.err
    assert f"{lost} needs its own pool" in ended.err


def test_an_answered_run_has_nothing_to_resume(podium: Podium, asked: str) -> None:
    ended = podium("runs", "resume", asked, "--pool", SCRIPTED_POOL)
    assert ended.code == 2
    assert "answered already" in ended.complaint


def test_resuming_needs_the_workers_that_the_run_had(
    podium: Podium, vendor: Vendor, tmp_path: Path, make_pool: MakePool
) -> None:
    pool = vendor.pool("lead", "left", "right", directory=tmp_path)
    podium("ask", "--pool", pool, "--budget-calls", "2", QUESTION)
    ended = podium("runs", "resume", "last", "--pool", make_pool())
    assert ended.code == 2
    assert "no worker named 'lead'" in ended.complaint
    ended = podium("runs", "resume", "last")
    assert ended.code == 2
    assert ended.complaint.endswith(
        "no worker named 'lead' in the default pool; give that pool with --pool FILE or "
        "--config FILE"
    )


def test_a_run_is_resumed_by_the_conductor_that_it_had(podium: Podium, make_pool: MakePool) -> None:
    pool = make_pool()  # the model conductor would be the usual one here
    cut = podium(
        "ask", "--json", "--pool", pool, "--conductor", "rules", "--budget-calls", "0", "q"
    )
    assert cut.json["status"] == "exhausted"
    ended = podium("runs", "resume", "last", "--pool", pool, "--budget-calls", "1", "--json")
    assert (ended.code, ended.json["conductor"], ended.json["answer"]) == (0, "rules", "42")


@pytest.mark.parametrize("planner", [(), ("--conductor", "first"), ("--conductor", "model")])
def test_a_worker_that_was_excluded_stays_so_when_the_run_is_resumed(
    podium: Podium, vendor: Vendor, tmp_path: Path, planner: tuple[str, ...]
) -> None:
    pool = vendor.pool("first", "second", directory=tmp_path)
    again = ("--pool", pool, "--budget-calls", "9")
    cut = podium(
        *("ask", "--json", "--pool", pool, "--conductor", "model", "--exclude", "first"),
        *("--budget-calls", "0", "q?"),
    )
    assert (cut.json["status"], cut.json["conductor"]) == ("exhausted", "model(second)")
    assert podium("runs", "export", "last").json["exclude"] == ["first"]
    ended = podium("runs", "resume", "last", *again, *planner, "--json")
    assert (ended.code, ended.json["answer"]) == (0, "reply of second")
    assert set(vendor.asked) == {"second"}


def test_runs_are_kept_where_the_configuration_says(
    podium: Podium, make_pool: MakePool, tmp_path: Path, home: Path
) -> None:
    pool = make_pool(head='[store]\npath = "elsewhere.db"\n')
    podium("ask", "--config", pool, "--conductor", "router", "q?")
    assert (tmp_path / "elsewhere.db").exists()
    assert not (home / "podium.db").exists()
    assert len(podium("runs", "list", "--json", "--config", pool).json) == 1


def test_a_store_that_cannot_be_used_costs_the_record_and_not_the_answer(
    podium: Podium, make_pool: MakePool, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere.db").write_text("this is no database, and long enough to tell\n" * 50)
    pool = make_pool(head='[store]\npath = "elsewhere.db"\n')
    ended = podium("ask", "-q", "--config", pool, "--conductor", "router", "q?")
    assert (ended.code, ended.out) == (0, "42\n")
    assert ended.complaint.startswith("this run will not be stored: ")
    listed = podium("runs", "list", "--config", pool)
    assert listed.code == 1
    assert "no Podium database" in listed.complaint


def test_a_disk_that_is_full_in_mid_run_costs_the_record_and_not_the_answer(
    podium: Podium, make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object) -> None:
        raise StoreError("cannot use the store: the disk is full; free some space")

    monkeypatch.setattr(SqlRunStore, "save", full)
    monkeypatch.setattr(SqlRunStore, "finish", full)
    ended = podium("ask", "-q", "--pool", make_pool(), "--conductor", "router", "q?")
    assert (ended.code, ended.out) == (0, "42\n")
    assert ended.complaint.startswith("this run was not stored: ")
    assert ended.complaint.endswith("free some space")
