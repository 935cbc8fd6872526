from __future__ import annotations

from podium.conductors.prompt import examples, with_binary_access
from podium.core.workflow import Shape, Step, Workflow


def test_there_are_four_examples_each_of_the_shape_it_states() -> None:
    assert [example.shape for example in examples()] == [
        Shape.ONE_SHOT,
        Shape.CHAIN,
        Shape.JOIN,
        Shape.TREE,
    ]
    for example in examples():
        example.workflow.check(example.pool.names)
        assert example.workflow.shape is example.shape


def test_with_binary_access_a_step_reads_everything_before_it_or_nothing() -> None:
    steps = (Step("a", "one"), Step("b", "two"), Step("c", "three", (1,)), Step("d", "four", "all"))
    access = [step.access for step in with_binary_access(Workflow(steps)).steps]
    assert access == [(), (), "all", "all"]
