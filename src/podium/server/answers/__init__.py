"""From a request to its response: runs of tiers (`tiers`) and single workers (`gateway`)."""
