"""Études: generated practice tasks for the built-in small world, each with one right answer.

Seven families of skills, one specialist each; questions that need one of them, or several in a
chain, a join or a tree; and the examples that workers and conductors are trained on.
`podium_lab.etudes.composition` keeps training and testing apart. What `podium` uses is exported.
"""

from podium_lab.etudes.composition import DEFAULT_SHAPES, TEST_ONLY_SHAPES, EtudeShape, Split
from podium_lab.etudes.skills import FAMILIES
from podium_lab.etudes.workers import GENERALIST, MISLEADING, ROLES, FlakyWorker

__all__ = [
    "DEFAULT_SHAPES",
    "FAMILIES",
    "GENERALIST",
    "MISLEADING",
    "ROLES",
    "TEST_ONLY_SHAPES",
    "EtudeShape",
    "FlakyWorker",
    "Split",
]
