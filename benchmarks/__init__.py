"""Podium beside its peers, measured on this machine and in one go.

A bare time says little on a machine that does other things too, so everything here is a ratio
to something measured in the same minute. Nothing of this package is used to answer a question.
"""
