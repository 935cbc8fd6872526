"""Strategies: the ways to answer that an evaluation compares.

registry            strategies by name
baselines           without a plan: single workers, votes, Mixture-of-Agents, self-reflection
conducting          with a plan: a conductor's, the ideal one, a random one
learned, routers    fitted strategies, their files and their models
fit                 fitting them
cross_validation    evaluating them on tasks that they did not learn from
"""
