"""Strategies: the ways to answer that an evaluation compares.

registry            strategies by name
conducting          plans and baselines: single workers, votes, Mixture-of-Agents, self-reflection
"""
