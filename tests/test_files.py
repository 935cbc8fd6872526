from __future__ import annotations

from pathlib import Path

import pytest

from podium.files import whole_directory


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_directory_is_not_there_until_all_of_it_is(tmp_path: Path) -> None:
    target = tmp_path / "new"
    with whole_directory(target) as draft:
        (draft / "one").write_text("1", "utf-8")
        assert not target.exists()
    assert names(tmp_path) == ["new"]
    assert names(target) == ["one"]


def test_a_directory_takes_the_place_of_another(tmp_path: Path) -> None:
    target = tmp_path / "new"
    target.mkdir()
    (target / "old").write_text("", "utf-8")
    with whole_directory(target) as draft:
        (draft / "one").write_text("1", "utf-8")
        assert names(target) == ["old"]
    assert names(target) == ["one"]
    assert names(tmp_path) == ["new"]


@pytest.mark.parametrize("fault", [OSError("no room"), KeyboardInterrupt()])
def test_what_was_there_stays_when_the_new_one_cannot_be_written(
    tmp_path: Path, fault: BaseException
) -> None:
    target = tmp_path / "new"
    target.mkdir()
    (target / "old").write_text("", "utf-8")

    def write_half() -> None:
        with whole_directory(target) as draft:
            (draft / "half").write_text("", "utf-8")
            raise fault

    with pytest.raises(type(fault)):
        write_half()
    assert names(target) == ["old"]
    assert names(tmp_path) == ["new"]


def test_what_a_killed_process_left_behind_is_no_hindrance(tmp_path: Path) -> None:
    left = tmp_path / ".new.part"
    left.mkdir()
    (left / "half").write_text("", "utf-8")
    with whole_directory(tmp_path / "new") as draft:
        assert names(draft) == []
    assert names(tmp_path) == ["new"]
