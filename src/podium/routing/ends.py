"""Both ends of a long text, which is all of it that a router reads.

A decision takes as long as what is read, and a question that is long says what is wanted where it
begins or where it ends; what lies between is mostly what it is about.
"""

from __future__ import annotations


def both_ends(text: str, most: int) -> str:
    """The text where it has at most so many characters, else as many of its beginning and its end,
    in lines of their own."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n{text[-half:]}"
