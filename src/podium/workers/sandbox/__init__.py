"""Run untrusted programs in an isolated child process."""
