"""Evaluations of conductors on the études: their cases, and the two tables of results.

cases            unseen études as cases
etudes_table     the table that a conductor of the études is judged by
evolved_table    evolved coordinators beside that conductor
training_cost    what a training took, from the files that it wrote
"""
