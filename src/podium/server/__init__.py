"""The server: Podium as one model behind the OpenAI and Anthropic APIs.

A dialect (`dialects/`) reads a body into an `ApiRequest` and writes the response; between the two
there is one way to answer. A refused or failed request is an `ApiError`.
"""
