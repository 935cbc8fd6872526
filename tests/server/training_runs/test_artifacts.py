from __future__ import annotations

import json
from pathlib import Path

from podium.server.training_runs import find_artifact, find_directories


def training(directory: Path) -> Path:
    directory.mkdir(parents=True)
    (directory / "metrics.jsonl").write_text('{"step": 1, "reward": 0.5}\n')
    return directory


def evaluation(directory: Path) -> Path:
    directory.mkdir(parents=True)
    (directory / "evaluation.json").write_text('{"suite": "etudes"}')
    (directory / "ideal.jsonl").write_text('{"strategy": "ideal"}\n')
    return directory


def found(*directories: Path) -> dict[str, str]:
    named = find_directories([str(item) for item in directories])
    return {exhibit.name: exhibit.kind for item in named for exhibit in item.artifacts}


def test_trainings_evaluations_and_reports_are_found_by_what_is_in_them(tmp_path: Path) -> None:
    root = tmp_path / "trained"
    training(root / "etudes")
    evaluation(root / "measured" / "mine")
    (root / "old").mkdir()
    (root / "old" / "summary.json").write_text('{"step": 3, "train_minutes": 1.5}')
    (root / "table").mkdir()
    (root / "table" / "summary.json").write_text('{"rows": []}')
    (root / "shown").mkdir()
    (root / "shown" / "report.html").write_text("<p>")
    (root / "grpo-1.jsonl").write_text('{"step": 1}\n')
    (root / "other.jsonl").write_text('{"question": 1}\n')
    (root / "conductor").mkdir()
    assert found(root) == {
        "trained.etudes": "training",
        "trained.grpo-1": "training",
        "trained.measured.mine": "evaluation",
        "trained.old": "training",
        "trained.shown": "report",
        "trained.table": "evaluation",
    }


def test_a_directory_may_be_one_itself_and_so_may_a_file(tmp_path: Path) -> None:
    training(tmp_path / "one")
    (tmp_path / "alone.jsonl").write_text('{"step": 1}\n')
    assert found(tmp_path / "one", tmp_path / "alone.jsonl") == {
        "one": "training",
        "alone": "training",
    }


def test_names_are_plain_and_each_is_there_once(tmp_path: Path) -> None:
    training(tmp_path / "a" / "run" / "x y/../z".replace("/../", "~"))
    training(tmp_path / "b" / "run" / "x~y~z")
    assert list(found(tmp_path / "a" / "run", tmp_path / "b" / "run")) == [
        "run.x-y-z",
        "run.x-y-z-2",
    ]


def test_a_name_is_looked_up_and_never_a_path(tmp_path: Path) -> None:
    root = tmp_path / "trained"
    training(root / "etudes")
    training(tmp_path / "secret")
    assert find_artifact([str(root)], "trained.etudes") is not None
    for name in ("../secret", "trained/../../secret", "..", "trained", "/etc/passwd", "etudes", ""):
        assert find_artifact([str(root)], name) is None, name


def test_links_lead_nowhere(tmp_path: Path) -> None:
    outside = training(tmp_path / "outside")
    root = tmp_path / "trained"
    root.mkdir()
    (root / "link").symlink_to(outside)
    evaluation(root / "mine")
    (root / "mine" / "report.html").symlink_to("/etc/passwd")
    (exhibit,) = find_directories([str(root)])[0].artifacts
    assert (exhibit.name, exhibit.report) == ("trained.mine", None)


def test_a_report_lies_in_its_evaluation_or_below(tmp_path: Path) -> None:
    root = tmp_path / "trained"
    evaluation(root / "mine")
    (root / "mine" / "report").mkdir()
    page = root / "mine" / "report" / "report.html"
    page.write_text("<p>")
    (exhibit,) = find_directories([str(root)])[0].artifacts
    assert exhibit.report == page


def test_a_directory_that_is_not_there_is_reported(tmp_path: Path) -> None:
    (named,) = find_directories([str(tmp_path / "nowhere")])
    assert (named.artifacts, named.problem) == ((), "directory not found")


def test_it_is_not_looked_further_than_some_levels_down(tmp_path: Path) -> None:
    training(tmp_path / "root" / "1" / "2" / "3" / "found")
    training(tmp_path / "root" / "1" / "2" / "3" / "4" / "lost")
    assert list(found(tmp_path / "root")) == []
    training(tmp_path / "root" / "1" / "2" / "near")
    assert list(found(tmp_path / "root")) == ["root.1.2.near"]


def test_a_summary_that_is_half_written_is_nothing_yet(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text(json.dumps({"train_minutes": 1})[:-4])
    assert found(tmp_path) == {}
