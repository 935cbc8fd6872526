"""The server: Podium as one model behind the APIs that people's tools already speak.

A dialect (`dialects/`) reads a body into an `Asked` and writes what came of it; between the two
there is one way to answer, whoever asks. What cannot be served is a `ApiError`, which each dialect
words in its own error shape.
"""
