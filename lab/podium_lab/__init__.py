"""Research that uses Podium: generated practice tasks and experiments in training.

    podium_lab.etudes   generated tasks with one right answer, their workers and their lessons

`podium` works without this package and imports it only inside functions.
"""
