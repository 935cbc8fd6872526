"""Tables of evaluations.

tables       what a conductor of the études is judged by
real_table   real workers, over several suites
"""
