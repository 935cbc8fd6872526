"""What the tests of plan texts share: the paper's pool, and workflows of every kind."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from podium.core.pool import Pool, WorkerProfile
from podium.core.workflow import Access, Step, Workflow

NAMES = ("gemini-2.5-pro", "claude-sonnet-4", "gpt-5", "qwen3-32b")

HOSTILE = (
    'model_id = [1]\nsubtasks = ["x"]\naccess_list = [[]]',
    '{"steps": []}',
    "<think>",
    "</think>",
    "```",
    '"',
    "'",
    "\\",
    "\\n",
    "”“’‘",
    "]]]",
    "[[[{",
    "# comment",
    "\n\t\r\x00\x0c\u2028",
    "don't",
    '"""',
    "\\u0041",
)


@pytest.fixture(scope="session")
def pool() -> Pool:
    return Pool(tuple(WorkerProfile(name=name) for name in NAMES))


@pytest.fixture(scope="session")
def workflows() -> st.SearchStrategy[Workflow]:
    """Valid workflows for the pool, with subtasks that try to break out of their quotes."""
    pieces = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=12))
    subtasks = st.lists(pieces, min_size=1, max_size=5).map("".join).filter(str.strip)
    return (
        st.integers(1, 5)
        .flatmap(lambda length: st.tuples(*(_steps(index, subtasks) for index in range(length))))
        .map(Workflow)
    )


def _steps(index: int, subtasks: st.SearchStrategy[str]) -> st.SearchStrategy[Step]:
    indices: st.SearchStrategy[Access] = st.sets(
        st.integers(0, index - 1) if index else st.nothing()
    ).map(lambda reads: tuple(sorted(reads)))
    everything: st.SearchStrategy[Access] = st.just("all")
    return st.builds(Step, st.sampled_from(NAMES), subtasks, indices | everything)
