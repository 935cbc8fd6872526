"""Local models: fetching their weights once, and the processes that run them."""
