"""The wire dialects, one file each: a body in, our own types out, and back again.

A dialect is a pure translation. It knows nothing of HTTP connections, keys, tiers or workers.
"""
