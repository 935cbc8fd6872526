"""Tables: what samples come to, in figures.

    row, statistics     what is counted of one strategy, and the arithmetic of chance
    yardsticks          what rows are held against: the best single worker, the ceiling
    measured            the rows of an evaluation, read back from its directory
    comparison          two evaluations of the same tasks against each other
    etudes, training    the table that a conductor of the études is judged by, and what it took
    evolved             the table of evolved coordinators beside it
    text_table          tables in plain text

Making samples is `podium.evals.evaluation` and the modules beside it; pages to show are
`podium.evals.page`. Modules are imported one by one: `etudes` evaluates, and an evaluation needs
`row`.
"""
