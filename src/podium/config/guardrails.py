"""The tables `[[guardrail]]`: checks of questions, replies and answers.

A hook of the user's own is named here, and imported when a Podium is opened.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from podium._util.tables import Table
from podium.config.workers import Name, Seconds
from podium.core.run import GuardrailStage
from podium.engine.guardrails.base import DEFAULT_TIMEOUT_SECONDS, STAGES, OnError
from podium.engine.guardrails.redaction import DEFAULT_KINDS, Kind

GuardrailKind = Literal["redact", "grounding", "python"]
GuardrailAction = Literal["redact", "block", "replan", "note"]

ACTIONS: Final[dict[GuardrailKind, tuple[GuardrailAction, ...]]] = {
    "redact": ("redact", "block"),
    "grounding": ("block", "replan", "note"),
    "python": (),
}
"""The actions of each kind, the default first; a function decides for itself."""

_KEYS_OF_KIND: Final[dict[str, GuardrailKind]] = {
    "kinds": "redact",
    "restore": "redact",
    "verifier": "grounding",
    "hook": "python",
}
_HOOK: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


class GuardrailSettings(Table):
    """A check of questions, replies and answers; they run in the order of the file."""

    kind: GuardrailKind = Field(
        description="`redact`: replace personal data and secrets by marks; `grounding`: another "
        "worker checks the answer against the steps' replies; `python`: a function of your own"
    )
    name: Name = Field(default="", description="its name on runs; by default `kind`; unique")
    stages: Annotated[tuple[GuardrailStage, ...], Field(strict=False, min_length=1)] = Field(
        default=STAGES,
        description="what it checks: `question`, `reply`, `answer`; by default all, and with "
        "`grounding` only the answer",
    )
    action: GuardrailAction | None = Field(
        default=None,
        description="what it does: with `redact`, `redact` (default) or `block`; with "
        "`grounding`, `block` (default), `replan` or `note`",
    )
    on_error: OnError = Field(default="block", description="what happens where it fails")
    timeout_seconds: Seconds = Field(
        default=DEFAULT_TIMEOUT_SECONDS, description="the longest that one check may take"
    )
    kinds: Annotated[tuple[Kind, ...], Field(strict=False, min_length=1)] = Field(
        default=DEFAULT_KINDS,
        description="with `redact`: what it looks for; by default all but `ip`",
    )
    restore: bool = Field(
        default=False,
        description="with `redact`: the client gets the answer with the values of its question; "
        "workers and the record have marks",
    )
    verifier: Name = Field(
        default="", description="with `grounding`: the worker of the pool that checks"
    )
    hook: str = Field(
        default="",
        description='with `python`: the function, as `"module:function"`; the module must be '
        "importable",
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_defaults(cls, data: Any) -> Any:
        kind = data.get("kind") if isinstance(data, dict) else None
        if kind not in ACTIONS:
            return data
        action = {"action": ACTIONS[kind][0]} if ACTIONS[kind] else {}
        stages = {"stages": ("answer",)} if kind == "grounding" else {}
        return {"name": kind, **action, **stages, **data}

    @model_validator(mode="after")
    def _check(self) -> Self:
        for key, kind in _KEYS_OF_KIND.items():
            if key in self.model_fields_set and self.kind != kind:
                raise ValueError(f'{key} has no effect with kind = "{self.kind}"; drop it')
        actions = ACTIONS[self.kind]
        if self.action is not None and self.action not in actions:
            known = " or ".join(actions) or "none: the function decides"
            raise ValueError(f'action is "{self.action}"; with "{self.kind}" it is {known}')
        if self.kind == "grounding":
            if not self.verifier:
                raise ValueError("verifier is missing; name the worker that checks the answer")
            if self.stages != ("answer",):
                raise ValueError('stages: the grounding check is of the "answer" alone; drop it')
        if self.kind == "python" and not _HOOK.fullmatch(self.hook):
            raise ValueError(
                f"hook: expected a function as module:function, such as "
                f'"my_checks:no_prices", got {self.hook!r}'
            )
        return self


def fingerprint(guardrails: Sequence[GuardrailSettings]) -> str:
    """Return a short hash of the guardrails, by which a change is seen."""
    text = json.dumps(
        [guardrail.model_dump(mode="json") for guardrail in guardrails], sort_keys=True
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]
