"""Small helpers without domain knowledge: files, processes, network addresses."""
