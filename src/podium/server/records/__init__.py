"""What is kept and told of what happened: runs, their live events, figures, the log, traces."""
