"""Statistics over many runs: the recent work of each worker, and spending."""
