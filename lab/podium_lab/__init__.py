"""Research with Podium: generated practice tasks and experiments in training.

    podium_lab.etudes      generated tasks with one right answer, their workers and examples
    podium_lab.evolution   a coordinator found by separable CMA-ES, without gradients

`podium` works without this package and imports it only inside functions.
"""
