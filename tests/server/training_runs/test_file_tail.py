from __future__ import annotations

import os
from pathlib import Path

from podium.server.training_runs import (
    FileTail,
    count_lines,
    open_regular_file,
    read_json,
    read_tail,
)


def test_a_line_that_is_still_being_written_is_left_for_the_next_time(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"one\ntwo\nthr")
    assert read_tail(file).lines == (b"one", b"two")
    with file.open("ab") as more:
        more.write(b"ee\nfour\n")
    assert read_tail(file).lines == (b"one", b"two", b"three", b"four")


def test_of_a_huge_file_only_the_end_is_read_in_whole_lines(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"".join(b"line %d\n" % n for n in range(1000)))
    tail = read_tail(file, most=100)
    assert tail.lines[-1] == b"line 999"
    assert all(line.startswith(b"line 9") for line in tail.lines)
    assert tail.skipped == file.stat().st_size - sum(len(line) + 1 for line in tail.lines)


def test_a_line_longer_than_what_is_read_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"x" * 150)
    assert read_tail(file, most=100).lines == ()
    with file.open("ab") as more:
        more.write(b"\nnext\n")
    assert read_tail(file, most=100).lines == (b"next",)


def test_links_pipes_and_what_is_not_there_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("one\n")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "missing", "."):
        assert read_tail(tmp_path / name) == FileTail()
        assert open_regular_file(tmp_path / name) is None
        assert count_lines(tmp_path / name, 100) == 0
        assert read_json(tmp_path / name) == {}


def test_json_that_cannot_be_read_is_nothing_and_no_number_is_none(tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    for broken in ("", "{", "[1]", '"x"', "[" * 100_000):
        file.write_text(broken)
        assert read_json(file) == {}
    file.write_text('{"a": NaN, "b": Infinity, "c": 1}')
    assert read_json(file) == {"a": None, "b": None, "c": 1}


def test_lines_are_counted_whole(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"one\ntwo\nthr")
    assert count_lines(file, 1_000_000) == 2
