"""The store: where runs are kept."""
