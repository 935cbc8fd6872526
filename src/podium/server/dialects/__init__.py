"""The wire dialects: OpenAI Chat Completions and Responses, Anthropic Messages.

A dialect translates bodies and knows nothing of connections, keys, tiers or workers.
"""
