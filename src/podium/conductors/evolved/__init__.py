"""TRINITY's coordinator: a frozen small model reads the transcript, and a linear head over what it
makes of it picks, turn by turn, a worker and its role.

`description` says what a coordinator is, `coordinator` has its numbers, `turns` what passes in a
run, and `conductor` leads one. How the small model reads is `podium.local.reading`, how a
coordinator is found is `podium.train`. Only `coordinator` and `conductor` need numpy.
"""
