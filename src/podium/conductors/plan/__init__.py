"""The text of a plan: reading it, writing it, and making models write it well.

    parse              a conductor's text      -> a workflow, or an error that says what to mend
    write              a workflow              -> the three lists, or JSON step by step
    write_acceptance   a plan without steps, which accepts the answer there is
    read_workflow      a JSON document         -> a workflow
    workflow_document  a workflow              -> a JSON document
    schema             JSON Schema of the JSON form, for structured output and editors
    grammar            GBNF grammar of either, for llama.cpp

Nothing here asks a model or carries a plan out.
"""

from __future__ import annotations

from podium.conductors.plan.parser import ParsedPlan, parse, read_workflow, workflow_document
from podium.conductors.plan.schema import grammar, schema
from podium.conductors.plan.writer import Order, write, write_acceptance

__all__ = [
    "Order",
    "ParsedPlan",
    "grammar",
    "parse",
    "read_workflow",
    "schema",
    "workflow_document",
    "write",
    "write_acceptance",
]
