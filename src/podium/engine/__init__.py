"""The engine: it carries a workflow out, and never plans."""
