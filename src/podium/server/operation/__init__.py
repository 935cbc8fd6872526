"""Start a server: from settings to a listening process."""
