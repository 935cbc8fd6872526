"""Training runs and evaluations on disk, for the web pages.

`artifacts` finds and reads their files, `documents` describes them. The formats are those of
`podium train` and `podium eval run`; nothing here imports either.
"""
