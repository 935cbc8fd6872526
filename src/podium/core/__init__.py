"""Frozen values and errors that every room shares. No I/O; imports no other room."""
