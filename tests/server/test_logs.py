from __future__ import annotations

import json
import logging

from podium.server.logs import JsonLines


def record(**extra: object) -> logging.LogRecord:
    made = logging.makeLogRecord({"name": "podium", "levelname": "INFO", "msg": "took %d ms"})
    made.args = (3,)
    vars(made).update(extra)
    return made


def test_a_line_is_one_json_object_with_what_was_added() -> None:
    line = JsonLines().format(record(model="podium", status=200, note="two\nlines"))
    assert "\n" not in line
    read = json.loads(line)
    assert (read["message"], read["level"]) == ("took 3 ms", "info")
    assert (read["model"], read["status"], read["note"]) == ("podium", 200, "two\nlines")


def test_what_failed_is_told_with_where() -> None:
    try:
        raise ValueError("no")
    except ValueError as error:
        read = json.loads(JsonLines().format(record(exc_info=(ValueError, error, None))))
    assert read["error"] == "ValueError('no')"
