"""Being a program whose functions a check calls from another process (`examiner`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import CodeType
from typing import Any, NoReturn

from podium.workers.sandbox.guard import wire
from podium.workers.sandbox.guard.program import CHECKED, become, end, settle_in


def serve(codes: Sequence[CodeType], hearing: int, answering: int) -> NoReturn:
    """Answer one question after the other, in the order in which they come."""
    settle_in()
    wire.allow_large_numbers()
    held = wire.Held()
    names: dict[str, Any] | None = None
    with open(hearing, encoding="utf-8") as questions, open(answering, "w") as answers:
        for question in questions:
            try:
                if names is None:
                    names = become(codes, CHECKED)
                answer = {"value": held.answer(json.loads(question), names)}
            except BaseException as error:  # noqa: BLE001 - whatever it is, the examiner decides
                answer = {"error": type(error).__name__, "told": _told(error)}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    end(0)


def _told(error: BaseException) -> str:
    """The error in its own words, which may fail too."""
    try:
        return str(error)[:1000]
    except BaseException:  # noqa: BLE001
        return ""
