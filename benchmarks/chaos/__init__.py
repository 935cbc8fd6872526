"""`python -m benchmarks chaos`: the promises of Podium, checked by breaking things.

`run` runs the parts. The checks are in `checks`, apart from the code that breaks things; `report`
prints the results.
"""
