"""Measures the sandbox stores: one trial of a sandbox workload, from its script to its samples."""
