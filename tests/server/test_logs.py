from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from podium.server.logs import (
    REQUEST_MESSAGE,
    JsonLogFormatter,
    TextLogFormatter,
    configure_logging,
)


def record(**extra: object) -> logging.LogRecord:
    usual = {"name": "podium", "levelname": "INFO", "levelno": logging.INFO}
    made = logging.makeLogRecord({**usual, "msg": "took %d ms"})
    made.args = (3,)
    vars(made).update(extra)
    return made


def test_a_line_is_one_json_object_with_what_was_added() -> None:
    line = JsonLogFormatter().format(record(model="podium", status=200, note="two\nlines"))
    assert "\n" not in line
    read = json.loads(line)
    assert (read["message"], read["level"]) == ("took 3 ms", "info")
    assert (read["model"], read["status"], read["note"]) == ("podium", 200, "two\nlines")


def test_failures_are_reported_with_their_place() -> None:
    try:
        raise ValueError("no")
    except ValueError as error:
        read = json.loads(JsonLogFormatter().format(record(exc_info=(ValueError, error, None))))
    assert read["error"] == "ValueError('no')"


def request(**extra: object) -> str:
    made = logging.makeLogRecord({"name": "podium", "levelname": "INFO", "msg": REQUEST_MESSAGE})
    usual = {"path": "/v1/messages", "status": 200, "milliseconds": 12.4, "model": "podium"}
    vars(made).update(usual | extra)
    return TextLogFormatter().format(made)


def test_a_request_is_one_line_that_a_person_can_read() -> None:
    line = request(run="run_1", input_tokens=1200, output_tokens=34, cost_usd=0.0012, key="Ada")
    assert line.split("  ")[1:] == [
        "200",
        "/v1/messages",
        "podium",
        "12 ms",
        "1,200 + 34 tokens",
        "$0.0012",
        "run_1",
        "key Ada",
    ]


def test_refusals_slow_requests_and_failures_are_reported() -> None:
    refused = request(
        status=400,
        error_reason="invalid",
        error_message="expected text",
        field="messages.2",
        milliseconds=1540.0,
    )
    assert "400" in refused
    assert "1.5 s  error: invalid (messages.2): expected text" in refused
    assert "exhausted" in request(run_status="exhausted")
    assert "answered" not in request(run_status="answered")


def test_no_text_of_a_client_commands_a_terminal() -> None:
    line = request(error_reason="invalid", field="a\x1b[2Jb\nc\u202e")
    assert line.isprintable()
    assert "a\\x1b[2Jb\\nc" in line


def test_another_line_is_what_it_says_with_its_level_where_something_is_wrong() -> None:
    assert TextLogFormatter().format(record()).endswith("  took 3 ms")
    wrong = record(levelname="WARNING", levelno=logging.WARNING)
    assert TextLogFormatter().format(wrong).endswith("  WARNING  took 3 ms")


def test_a_fault_says_where_it_was() -> None:
    try:
        raise ValueError("no")
    except ValueError as error:
        wrong = record(exc_info=(ValueError, error, error.__traceback__))
    first, *rest = TextLogFormatter().format(wrong).splitlines()
    assert first.endswith("took 3 ms")
    assert rest[-1] == "ValueError: no"


def test_a_line_of_several_is_several_to_read() -> None:
    made = logging.makeLogRecord({"msg": "one\ntwo\x1b", "levelno": logging.INFO})
    assert TextLogFormatter().format(made).endswith("  one\ntwo\\x1b")


@pytest.fixture
def loggers() -> Iterator[list[logging.Logger]]:
    """The loggers of a server, put back as they were."""
    named = [logging.getLogger(name) for name in ("podium", "uvicorn", "uvicorn.access")]
    before = [(one.handlers, one.level, one.propagate) for one in named]
    yield named
    for one, (handlers, level, propagate) in zip(named, before, strict=True):
        one.handlers, one.propagate = handlers, propagate
        one.setLevel(level)


def test_the_web_servers_own_lines_are_for_programs(
    loggers: list[logging.Logger], capsys: pytest.CaptureFixture[str]
) -> None:
    for form, lines in (("json", 2), ("text", 1)):
        configure_logging(form)  # type: ignore[arg-type]
        logging.getLogger("uvicorn.error").info("Started server process [1]")
        logging.getLogger("podium.server").info("running on http://127.0.0.1:7755")
        written = capsys.readouterr().err
        assert len(written.splitlines()) == lines
        assert "uvicorn.error" not in written
