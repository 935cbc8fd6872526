"""Providers: one file for each vendor protocol, behind the two-method worker protocol."""
