"""Strategies: the ways to answer that an evaluation compares.

registry            strategies by name, and the files of fitted ones
conducting          plans and baselines: single workers, votes, Mixture-of-Agents, self-reflection
routers             the models of fitted strategies
fit                 fitting them, and evaluating them on tasks that they did not learn from
routing_curves      accuracy of routers at every cost
"""
