"""The measurement behind `benchmarks capacity`: what one process, one machine and replicas over
one Postgres carry, what that costs the database, and what a run in flight takes of memory.

`measure` is the whole of it, `stations` are the servers that are measured, `database` and
`holding` are the database's part and the memory's, `figures` is what came of it. The page
`docs/capacity.md` is made of the file that the command writes (`page`).
"""
