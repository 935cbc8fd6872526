"""Podium: an open conductor for language models."""
