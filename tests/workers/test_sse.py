import time

import pytest

from podium.workers.http import EventReader, ServerEvent


def read(*pieces: bytes) -> list[ServerEvent]:
    reader = EventReader()
    return [event for piece in pieces for event in reader.feed(piece)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_events_are_the_same_however_the_stream_is_cut(end: bytes, size: int) -> None:
    stream = b"event: a\ndata: {\xc3\xa9}\n\ndata:no space\ndata: two\n\n".replace(b"\n", end)
    pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
    assert read(*pieces) == [ServerEvent("a", "{é}"), ServerEvent("", "no space\ntwo")]


def test_comments_unknown_fields_and_empty_events_are_skipped() -> None:
    assert read(b": ping\nid: 3\nretry: 10\n\nevent: x\n\ndata: y\n\n") == [ServerEvent("", "y")]


def test_an_event_that_the_stream_breaks_off_in_is_dropped() -> None:
    assert read(b"data: whole\n\ndata: half\n") == [ServerEvent("", "whole")]


def test_bytes_that_are_not_utf_8_are_an_error() -> None:
    with pytest.raises(UnicodeDecodeError):
        read(b"data: \xff\n\n")


def test_a_long_line_in_tiny_pieces_takes_linear_time() -> None:
    def seconds(length: int) -> float:
        started = time.perf_counter()
        read(*[b"data"] * length)
        return time.perf_counter() - started

    seconds(1000)
    assert seconds(80_000) < 40 * seconds(8_000) + 0.1
