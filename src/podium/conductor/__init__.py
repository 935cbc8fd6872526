"""Conductors: they read a situation and write a plan, and never carry one out."""
