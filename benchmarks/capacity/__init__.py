"""Measure what one process, one machine and replicas over one Postgres carry.

`docs/reference/capacity.md` is generated from the results.
"""
