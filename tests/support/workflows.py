"""Any workflow that can be planned over a few workers, for properties."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from podium.core.workflow import Access, Step, Workflow


@st.composite
def workflows(
    draw: st.DrawFn, workers: Sequence[str] = "abc", longest: int = 7, name: str = "subtask"
) -> Workflow:
    """Step `i` has the subtask `{name}-{i}`."""
    steps = []
    for index in range(draw(st.integers(1, longest))):
        access: Access = draw(
            st.one_of(
                st.just("all"),
                st.sets(st.integers(0, max(0, index - 1))).map(lambda s: tuple(sorted(s))),
            )
            if index
            else st.sampled_from(["all", ()])
        )
        steps.append(Step(draw(st.sampled_from(workers)), f"{name}-{index}", access))
    return Workflow(tuple(steps))
