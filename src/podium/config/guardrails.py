"""The tables `[[guardrail]]`: what looks at questions, replies and answers.

What a guardrail does is `podium.guardrails`; a function of the user's own is named here, and found
only when a Podium is opened.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Final, Literal

from pydantic import Field

from podium.core.errors import ConfigError
from podium.core.run_records import Place
from podium.engine.guardrails.base import PLACES, SECONDS, OnError
from podium.engine.guardrails.redaction import USUAL_KINDS, Kind
from podium.workers.catalogue import Table

GuardrailKind = Literal["redact", "grounding", "python"]
GuardrailAction = Literal["redact", "block", "replan", "note"]

ACTIONS: Final[dict[GuardrailKind, tuple[GuardrailAction, ...]]] = {
    "redact": ("redact", "block"),
    "grounding": ("block", "replan", "note"),
    "python": (),
}
"""What each kind may do about what it finds, the usual first; a function decides for itself."""

_OWN_KEYS: Final[dict[str, GuardrailKind]] = {
    "finds": "redact",
    "restore": "redact",
    "verifier": "grounding",
    "hook": "python",
}
_HOOK: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")

Name = Annotated[str, Field(min_length=1, pattern=r"^\S(.*\S)?$")]


class GuardrailTable(Table):
    """A check of questions, replies and answers; they look in the order of the file."""

    kind: GuardrailKind = Field(
        description="`redact`: personal data and secrets become marks; `grounding`: another worker "
        "checks the answer against the steps' replies; `python`: a function of your own"
    )
    name: Name | None = Field(
        default=None, description="what runs call it; `kind` when left out; unique"
    )
    places: Annotated[tuple[Place, ...], Field(strict=False, min_length=1)] | None = Field(
        default=None,
        description="where it looks: `question`, `reply`, `answer`; all when left out, and with "
        "`grounding` only the answer",
    )
    action: GuardrailAction | None = Field(
        default=None,
        description="what is done about what it finds: with `redact`, `redact` (usual) or `block`; "
        "with `grounding`, `block` (usual), `replan` or `note`",
    )
    on_error: OnError = Field(
        default="block", description="what happens where it fails: `block` or `pass`"
    )
    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        default=SECONDS, description="how long it may take over one text"
    )
    finds: Annotated[tuple[Kind, ...], Field(strict=False, min_length=1)] | None = Field(
        default=None, description="with `redact`: what it looks for; when left out, all but `ip`"
    )
    restore: bool = Field(
        default=False,
        description="with `redact`: whoever asked gets the answer with the values of their "
        "question; workers and the record have marks",
    )
    verifier: Name | None = Field(
        default=None, description="with `grounding`: the worker of the pool that is asked"
    )
    hook: str | None = Field(
        default=None,
        description='with `python`: the function, as `"module:function"`; the module must be '
        "importable",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardrailSettings:
    """One guardrail, as its table describes it."""

    name: str
    kind: GuardrailKind
    places: tuple[Place, ...]
    action: GuardrailAction | None = None
    on_error: OnError = "block"
    seconds: float = SECONDS
    finds: tuple[Kind, ...] = USUAL_KINDS
    restore: bool = False
    verifier: str = ""
    hook: str = ""


def fingerprint(guardrails: Sequence[GuardrailSettings]) -> str:
    """A short mark of what is in force, by which a change of it is seen."""
    told = json.dumps([asdict(each) for each in guardrails], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def guardrail_settings(
    tables: Sequence[GuardrailTable], *, workers: Collection[str], rounds: int
) -> tuple[GuardrailSettings, ...]:
    """What the tables mean; raises `ConfigError` for one that cannot be. `workers` are those that
    can be asked by themselves, `rounds` how often the conductor may plan."""
    settings = tuple(
        _settings(f"guardrail[{index}]", table, workers, rounds)
        for index, table in enumerate(tables)
    )
    names = [each.name for each in settings]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ConfigError(
                f"guardrail[{index}].name: there are two guardrails named {name!r}; give one "
                f'another name, with name = "…"'
            )
    return settings


def _settings(
    where: str, table: GuardrailTable, workers: Collection[str], rounds: int
) -> GuardrailSettings:
    for key, kind in _OWN_KEYS.items():
        if key in table.model_fields_set and table.kind != kind:
            raise ConfigError(f'{where}.{key} has no effect with kind = "{table.kind}"; drop it')
    actions = ACTIONS[table.kind]
    if table.action is not None and table.action not in actions:
        known = " or ".join(actions) or "none: the function decides"
        raise ConfigError(f'{where}.action is "{table.action}"; with "{table.kind}" it is {known}')
    action = table.action or (actions[0] if actions else None)
    if action == "replan" and rounds < 2:
        raise ConfigError(
            f'{where}.action is "replan", but the conductor plans once; raise conductor.rounds'
        )
    if table.kind == "grounding":
        _check_verifier(where, table, workers)
    if table.kind == "python" and not _HOOK.fullmatch(table.hook or ""):
        raise ConfigError(
            f"{where}.hook: expected a function as module:function, such as "
            f'"my_checks:no_prices", got {table.hook!r}'
        )
    usual: tuple[Place, ...] = ("answer",) if table.kind == "grounding" else PLACES
    return GuardrailSettings(
        name=table.name or table.kind,
        kind=table.kind,
        places=table.places or usual,
        action=action,
        on_error=table.on_error,
        seconds=table.seconds,
        finds=table.finds or USUAL_KINDS,
        restore=table.restore,
        verifier=table.verifier or "",
        hook=table.hook or "",
    )


def _check_verifier(where: str, table: GuardrailTable, workers: Collection[str]) -> None:
    if table.verifier is None:
        raise ConfigError(f"{where}.verifier is missing; name the worker that checks the answer")
    if table.verifier not in workers:
        raise ConfigError(
            f"{where}.verifier: {table.verifier!r} is no worker of this pool that answers by "
            f"itself; there is {', '.join(workers) or 'none'}"
        )
    if table.places not in (None, ("answer",)):
        raise ConfigError(f'{where}.places: the grounding check is of the "answer" alone; drop it')
