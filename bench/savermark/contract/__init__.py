"""The retention contract as scenarios: threads that a prune must not harm, played on any saver.

`run_contract(saver, prune)` plays each with a real graph, lets the prune have its thread, re-reads
what was promised (`savermark.retention.verify`) and goes on with the conversation beside a twin
that was never pruned. `savermark.pytest_plugin` makes a test of each.
"""
