"""The pool in words: one line for each worker, under the ids that plans use."""

from __future__ import annotations

from typing import Final

from podium.pool import CONDUCTOR_PROVIDER, Pool, WorkerProfile

PLANNING_CAPABILITIES: Final = ("vision", "tools", "long_context", "reasoning")
"""What a conductor should know of a worker; the other capabilities concern the wire alone."""


def model_list(pool: Pool) -> str:
    """The pool for a model that reads instructions: who a worker is, and what it can do."""
    return "\n".join(_line(index, worker, pool.mask_names) for index, worker in enumerate(pool))


def short_model_list(pool: Pool) -> str:
    """The pool for a model that was trained to plan: the descriptions alone, or after the names
    where these are not masked. The id comes last: when a small model reads it, it has read whose
    id it is, and finds it again by that."""
    return "\n".join(_short_line(i, worker, pool.mask_names) for i, worker in enumerate(pool))


def _short_line(index: int, worker: WorkerProfile, masked: bool) -> str:
    description = on_one_line(worker.description)
    said = [description] if masked else [worker.name, description]
    return f"{' — '.join(filter(None, said))} = {index}".removeprefix(" = ")


def _line(index: int, worker: WorkerProfile, masked: bool) -> str:
    description = on_one_line(worker.description)
    if masked:
        return f"Model id {index}: {description}" if description else f"Model id {index}"
    named = f"{index}: {worker.name} — {description}" if description else f"{index}: {worker.name}"
    traits = _traits(worker)
    return f"{named} [{', '.join(traits)}]" if traits else named


def _traits(worker: WorkerProfile) -> list[str]:
    traits = [c.replace("_", " ") for c in PLANNING_CAPABILITIES if c in worker.capabilities]
    if worker.provider == CONDUCTOR_PROVIDER:
        traits.append("leads a team of its own")
    if worker.price is not None:
        traits.append(_price_band(worker.price.output))
    return traits


def _price_band(dollars: float) -> str:
    """Roughly what a worker costs, from its price for a million tokens of output."""
    if dollars == 0:
        return "free"
    return "cheap" if dollars < 2 else "medium price" if dollars < 12 else "expensive"


def on_one_line(text: str) -> str:
    """The text with a single space for whatever white space it has."""
    return " ".join(text.split())
