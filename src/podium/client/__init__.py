"""`Podium` and `AsyncPodium`: the library, and how its parts are wired together."""
