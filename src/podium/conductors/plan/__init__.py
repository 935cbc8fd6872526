"""The text of a plan: parse it, write it, constrain models to it.

parse              a conductor's text      -> a workflow, or an error that says what to mend
PlanStream         pieces of such a text   -> its steps, as soon as each is final
write              a workflow              -> the three lists, or JSON step by step
write_acceptance   a plan without steps, which accepts the answer there is
read_workflow      a JSON document         -> a workflow
workflow_document  a workflow              -> a JSON document
schema             JSON Schema of the JSON form, for structured output and editors
grammar            GBNF grammar of either, for llama.cpp
forced_opening     the beginning of every plan, which a local model need not write
"""

from __future__ import annotations

from podium.conductors.plan.parser import (
    PlanStream,
    parse,
    read_workflow,
    workflow_document,
)
from podium.conductors.plan.writer import (
    PlanLayout,
    forced_opening,
    grammar,
    schema,
    write,
    write_acceptance,
)

__all__ = [
    "PlanLayout",
    "PlanStream",
    "forced_opening",
    "grammar",
    "parse",
    "read_workflow",
    "schema",
    "workflow_document",
    "write",
    "write_acceptance",
]
