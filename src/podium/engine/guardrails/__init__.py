"""Guardrails: check questions, replies and answers, and pass, redact, block, verify or replan.

base        the input and the verdicts of a guardrail
chain       the guardrails of one run
admission   where a run calls them
redaction   built in: personal data and secrets become placeholders
grounding   built in: another worker checks the answer against the replies
"""

from podium.engine.guardrails.base import (
    Block,
    Guardrail,
    GuardrailInput,
    Hook,
    Note,
    Pass,
    Redact,
    Replan,
    Verdict,
    Verify,
    as_guardrail,
)
from podium.engine.guardrails.chain import GuardrailChain
from podium.engine.guardrails.grounding import Grounding
from podium.engine.guardrails.redaction import (
    KINDS,
    Kind,
    Redaction,
    RedactionAction,
)

__all__ = [
    "KINDS",
    "Block",
    "Grounding",
    "Guardrail",
    "GuardrailChain",
    "GuardrailInput",
    "Hook",
    "Kind",
    "Note",
    "Pass",
    "Redact",
    "Redaction",
    "RedactionAction",
    "Replan",
    "Verdict",
    "Verify",
    "as_guardrail",
]
