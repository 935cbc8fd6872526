from __future__ import annotations

import os
from pathlib import Path

from podium.server.training_runs import (
    NO_FILE,
    count_lines,
    open_regular_file,
    read_json,
    read_tail,
)


def test_a_line_that_is_still_being_written_is_left_for_the_next_time(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"one\ntwo\nthr")
    first = read_tail(file)
    assert (first.lines, first.from_start) == ((b"one", b"two"), True)
    with file.open("ab") as more:
        more.write(b"ee\nfour\n")
    second = read_tail(file, first.cursor)
    assert (second.lines, second.from_start) == ((b"three", b"four"), False)
    third = read_tail(file, second.cursor)
    assert (third.lines, third.from_start, third.cursor) == ((), False, second.cursor)


def test_a_file_that_was_written_anew_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"one\ntwo\n")
    cursor = read_tail(file).cursor
    file.write_bytes(b"uno\n")
    shorter = read_tail(file, cursor)
    assert (shorter.lines, shorter.from_start) == ((b"uno",), True)
    file.write_bytes(b"eins\nzwei\ndrei\n")
    assert read_tail(file, cursor).lines == (b"eins", b"zwei", b"drei")


def test_a_cursor_that_never_was_one_reads_anew(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"one\n")
    for cursor in ("", "x", "999-00000000", "-1-00000000", "4-0000000g", "4-00000000"):
        assert read_tail(file, cursor).lines == (b"one",), cursor


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
    first = read_tail(file, most=100)
    assert first.lines == ()
    with file.open("ab") as more:
        more.write(b"\nnext\n")
    assert read_tail(file, first.cursor, most=100).lines[-1] == b"next"


def test_links_pipes_and_what_is_not_there_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("one\n")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "missing", "."):
        assert read_tail(tmp_path / name) == NO_FILE
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
