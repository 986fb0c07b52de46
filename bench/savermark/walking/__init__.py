"""The walk experiment: one thread, each way to rebuild its delta channels, latency and counts."""
