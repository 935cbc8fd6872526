"""Evaluation: strategies compared on the same tasks with the same workers.

    setup               the workers that take part
    sample, evaluation  one graded answer with its context, and strategies run over cases
    report              an evaluation from its specification
    log                 the results directory, written and read back
    results, comparison     rows and their statistics, reference rows, differences
    strategies/         the ways to answer
    page/               HTML reports

Tasks come from `podium.tasks`; the commands are in `podium.cli`.
"""
