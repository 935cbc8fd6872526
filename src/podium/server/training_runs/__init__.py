"""Trainings and evaluations on this machine's disk, as pages can show them.

`places` finds them below the directories that the configuration names, `tail` reads files that may
be huge, half written or growing, `training` and `evaluation` say what is in them. The formats are
those that `podium train` and `podium eval run` document; nothing here imports either.
"""
