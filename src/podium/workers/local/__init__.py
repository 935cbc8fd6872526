"""Local models: weights, the llama.cpp process, and batched decoding with transformers."""
