"""Records of a server: stored runs, live events, metrics, the audit log, traces."""
