"""The log of a server, on standard error: one line for each request, as JSON for programs or as
text for a person at a terminal. No words of questions and answers are in it unless the settings say
so."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final

from podium.config.schema import LogForm

LOGGER: Final = logging.getLogger("podium.server")

REQUEST_MESSAGE: Final = "request"
"""The message of the line that each request has; what there is to say of it is added to it."""

_STANDARD: Final = frozenset(
    (*vars(logging.makeLogRecord({})), "message", "asctime", "color_message")
)


class JsonLogFormatter(logging.Formatter):
    """A record as one line of JSON, with what was given as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": moment,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= _added(record)
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = repr(record.exc_info[1])
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True, default=str)


class TextLogFormatter(logging.Formatter):
    """A record as one line to read, with the time of day; a fault also says where it was."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        moment = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        added = _added(record)
        if record.msg == REQUEST_MESSAGE and "status" in added:
            said = _request(added)
        elif record.levelno > logging.INFO:
            said = f"{record.levelname}  {record.getMessage()}"
        else:
            said = record.getMessage()
        line = f"{moment}  " + "\n".join(map(_printable, said.splitlines()))
        if record.exc_info and record.exc_info[1] is not None:
            line += f"\n{self.formatException(record.exc_info)}"
        return line


def default_log_format() -> LogForm:
    """The form of the log where nobody has said which: text for a terminal."""
    return "text" if sys.stderr.isatty() else "json"


def configure_logging(form: LogForm, level: int = logging.INFO) -> None:
    """Have what Podium and the web server log written in that form. For a person the server's
    own lines say enough, and the web server is heard only where something is wrong."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_is_no_echo)
    handler.setFormatter(TextLogFormatter() if form == "text" else JsonLogFormatter())
    for name in ("podium", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False
    if form == "text":
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
    logging.getLogger("uvicorn.access").handlers = []
    logging.getLogger("uvicorn.access").propagate = False  # each request has its own line here


def _is_no_echo(record: logging.LogRecord) -> bool:
    """Whether this is more than the web server's trace of an error that the server itself has
    told in words as it was starting."""
    said = record.getMessage() if record.name == "uvicorn.error" else ""
    return not (said.startswith("Traceback") and "\npodium.core.errors." in said)


def _added(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


def _request(added: dict[str, Any]) -> str:
    """What there is to say of a request, in the order in which a person wants to know it."""
    parts = [str(added["status"]), added["path"], added.get("model", ""), _time(added)]
    if "refused" in added:
        where = f" ({added['field']})" if added.get("field") else ""
        parts.append(f"refused: {added['refused']}{where}")
    if added.get("input_tokens") is not None and added.get("output_tokens") is not None:
        parts.append(f"{added['input_tokens']:,} + {added['output_tokens']:,} tokens")
    if added.get("cost_usd"):
        parts.append(f"${added['cost_usd']:.4f}")
    if added.get("gone"):
        parts.append("the client went away")
    if added.get("run_status", "answered") != "answered":
        parts.append(added["run_status"])
    parts += [added.get("run", ""), f"key {added['key']}" if "key" in added else ""]
    parts += [f"{name}: {added[name]}" for name in ("question", "answer") if added.get(name)]
    return _printable("  ".join(part for part in parts if part))


def _time(added: dict[str, Any]) -> str:
    milliseconds: float = added["milliseconds"]
    return f"{milliseconds:.0f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.1f} s"


def _printable(text: str) -> str:
    """The text with escapes for what a terminal would obey: some of it comes from clients."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )
