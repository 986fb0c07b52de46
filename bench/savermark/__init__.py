"""Benchmarks and storage measurement for the checkpoint stores of LLM agents."""
