"""Conformance: every rule a saver must keep, tried on any saver, one row a rule.

`run_conformance` runs the public suite's capabilities, the three of delta channels, the rules of
the interface and what cleanup methods must leave intact, through each api that the saver has.
"""

from savermark.conformance.model import Row, Status
from savermark.conformance.run import run_conformance

__all__ = ["Row", "Status", "run_conformance"]
