"""Evaluation: strategies compared on the same tasks with the same workers.

    setup, context      the workers that take part, and what a strategy works with
    sample, evaluation  one graded answer, and strategies run over cases
    report              an evaluation from its specification
    log                 the results directory, written and read back
    results, comparison, statistics     rows, reference rows, differences, intervals
    strategies/         the ways to answer
    recorded            workers that replay recorded results of real models
    page/               HTML reports

Tasks come from `podium.tasks`; the commands are in `podium.cli`.
"""
