"""TRINITY's coordinator: a frozen small model reads the transcript, and a linear head over its
hidden state picks a worker and a role, turn by turn.

`description` is `coordinator.json`, `coordinator` its numbers, `turns` the transcript, `conductor`
the conductor. `coordinator` and `conductor` need numpy.
"""
