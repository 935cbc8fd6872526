"""Guardrails: functions that look at the question, at each reply and at the answer, and let it
through, redact it, block it, have it verified, or demand another plan.

    base        what a guardrail is given and may decide
    guard       those of one run at work
    redaction   built in: personal data and secrets become marks (`kinds` has their shapes)
    grounding   built in: another worker checks the answer against the replies
    restoring   marks put back, in what whoever asked is told

Where in a run they are called is `podium.performance`.
"""

from podium.engine.guardrails.base import (
    PLACES,
    Block,
    Guardrail,
    GuardrailInput,
    Hook,
    Note,
    OnError,
    Pass,
    Redact,
    Replan,
    Source,
    Verdict,
    Verify,
    as_guardrail,
)
from podium.engine.guardrails.chain import Guard, Metered
from podium.engine.guardrails.grounding import Grounding, Ungrounded
from podium.engine.guardrails.redaction import KINDS, USUAL_KINDS, Found, Kind, Redaction

__all__ = [
    "KINDS",
    "PLACES",
    "USUAL_KINDS",
    "Block",
    "Found",
    "Grounding",
    "Guard",
    "Guardrail",
    "GuardrailInput",
    "Hook",
    "Kind",
    "Metered",
    "Note",
    "OnError",
    "Pass",
    "Redact",
    "Redaction",
    "Replan",
    "Source",
    "Ungrounded",
    "Verdict",
    "Verify",
    "as_guardrail",
]
