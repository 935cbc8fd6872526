"""`python -m benchmarks chaos`: the promises of Podium, checked by breaking things.

`measure` runs the parts, one module each: `faults`, `kills`, `replicas`, `soak`, `fuzzing` and
`wire`. What counts as broken is in `checks`, apart from what breaks things; `row` says what was
found. What stands outside of the thing that is broken (`upstream`, `witness`) is what it is
checked against.
"""
