"""From settings to a process that listens: start-up, the address, models that load first."""
