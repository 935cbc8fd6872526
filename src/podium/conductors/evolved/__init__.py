"""TRINITY's coordinator: a frozen small model reads the transcript, and a linear head over its
hidden state picks a worker and a role, turn by turn.

`description` is `coordinator.json`, `coordinator` its numbers and its conductor, `turns` the
transcript. `coordinator` needs numpy.
"""
