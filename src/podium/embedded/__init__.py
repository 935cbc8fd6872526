"""Local models: fetching their weights once, and the pool that needs no key and no file."""
