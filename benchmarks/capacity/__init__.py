"""Measure what one process, one machine and replicas over one Postgres carry.

`benchmarks/capacity/README.md` is generated from the results.
"""
