"""`savermark sandbox`: the sandbox checkpoint stores, measured and proved."""

from __future__ import annotations

import click

from savermark.cli.groups import VerbGroup

# Verb -> its one-line help; each is imported when asked for.
VERBS = {
    "run": "Run sandbox workloads on pairs of a checkpoint store and a blob store, measured.",
    "conformance": "Try every rule of the sandbox checkpoint store on any store.",
}


@click.group(
    "sandbox",
    cls=VerbGroup,
    verbs=VERBS,
    module="sandbox_{}",
    epilog="Example: savermark sandbox run sandbox-coding-agent",
)
def command() -> None:
    """Measure and prove stores of sandbox checkpoints (docs/sandbox.md)."""
