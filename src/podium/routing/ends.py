"""Both ends of a long text, which is all of it that a router reads.

A decision takes as long as what is read, and a question that is long says what is wanted where it
begins or where it ends; what lies between is mostly what it is about.
"""

from __future__ import annotations


def both_ends(text: str, most: int) -> str:
    """The text where it has at most so many characters, else as many of its beginning and its end,
    in lines of their own. Half of a surrogate pair, which nobody can encode, is a question mark."""
    half = most // 2
    read = text if len(text) <= most else f"{text[:half]}\n{text[-half:]}"
    return read.encode("utf-8", "replace").decode("utf-8")
