"""Checkpoints of an agent's workspace: files, conversation and artifacts, one chain a thread."""
