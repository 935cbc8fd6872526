"""Logging to standard error: one line for each request, as JSON or as text for a terminal.

Text of questions and answers is logged only with `log_prompts`.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final

from podium.config.schema import LogForm

LOGGER: Final = logging.getLogger("podium.server")

REQUEST_MESSAGE: Final = "request"
"""The message of a request's log record; its fields are in `extra`."""

MAX_LOGGED_MESSAGE: Final = 500
"""Characters of a refusal's message: providers may answer with a page."""

_LOGGER_NAMES: Final = {"uvicorn.error": "uvicorn"}
"""uvicorn logs everything under a name that looks like an error."""


def log_request(fields: dict[str, Any]) -> None:
    """Log a request, without the search for the line of code that others pay for."""
    record = LOGGER.makeRecord(
        LOGGER.name, logging.INFO, "", 0, REQUEST_MESSAGE, (), None, extra=fields
    )
    LOGGER.handle(record)


_STANDARD: Final = frozenset(
    (*vars(logging.makeLogRecord({})), "message", "asctime", "color_message")
)


_encode: Final = json.JSONEncoder(default=str).encode


class JsonLogFormatter(logging.Formatter):
    """Formats a record as one line of JSON, with its `extra` fields."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": moment,
            "level": record.levelname.lower(),
            "logger": _LOGGER_NAMES.get(record.name, record.name),
            "message": record.getMessage(),
        }
        line |= _extra_fields(record)
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = repr(record.exc_info[1])
            line["trace"] = self.formatException(record.exc_info)
        return _encode(line)


class TextLogFormatter(logging.Formatter):
    """Formats a record as one line for people; exceptions keep their traceback."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        fields = _extra_fields(record)
        if record.msg == REQUEST_MESSAGE and "status" in fields:
            text = _format_request(fields)
        elif record.levelno > logging.INFO:
            text = f"{record.levelname}  {record.getMessage()}"
        else:
            text = record.getMessage()
        line = f"{moment}  " + "\n".join(map(_escape, text.splitlines()))
        if record.exc_info and record.exc_info[1] is not None:
            line += f"\n{self.formatException(record.exc_info)}"
        return line


def default_log_format() -> LogForm:
    """Return text for a terminal, else JSON."""
    return "text" if sys.stderr.isatty() else "json"


def configure_logging(log_format: LogForm, level: int = logging.INFO) -> None:
    """Log Podium and uvicorn in that format; as text, uvicorn logs only warnings."""
    handler = logging.StreamHandler(sys.stderr)
    logging.getLogger("uvicorn.error").addFilter(_is_not_startup_traceback)
    handler.setFormatter(TextLogFormatter() if log_format == "text" else JsonLogFormatter())
    for name in ("podium", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False
    if log_format == "text":
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
    logging.getLogger("uvicorn.access").handlers = []
    logging.getLogger("uvicorn.access").propagate = False  # Podium logs each request itself


def _is_not_startup_traceback(record: logging.LogRecord) -> bool:
    """Drop uvicorn's traceback of a startup error that Podium has logged in one line."""
    text = record.getMessage()
    return not (text.startswith("Traceback") and "\npodium.core.errors." in text)


def _extra_fields(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


def _format_request(fields: dict[str, Any]) -> str:
    parts = [
        str(fields["status"]),
        fields["path"],
        fields.get("model", ""),
        _format_duration(fields["milliseconds"]) if "milliseconds" in fields else "",
    ]
    if "error_reason" in fields:
        field = f" ({fields['field']})" if fields.get("field") else ""
        parts.append(f"error: {fields['error_reason']}{field}: {fields.get('error_message', '')}")
    if fields.get("input_tokens") is not None and fields.get("output_tokens") is not None:
        parts.append(f"{fields['input_tokens']:,} + {fields['output_tokens']:,} tokens")
    if fields.get("cost_usd"):
        parts.append(f"${fields['cost_usd']:.4f}")
    if fields.get("disconnected"):
        parts.append("client disconnected")
    if fields.get("run_status", "answered") != "answered":
        parts.append(fields["run_status"])
    parts += [fields.get("run", ""), f"key {fields['key']}" if "key" in fields else ""]
    parts += [f"{name}: {fields[name]}" for name in ("question", "answer") if fields.get(name)]
    return _escape("  ".join(part for part in parts if part))


def _format_duration(milliseconds: float) -> str:
    return f"{milliseconds:.0f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.1f} s"


def _escape(text: str) -> str:
    """Escape control characters, which clients may send to attack terminals."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )
