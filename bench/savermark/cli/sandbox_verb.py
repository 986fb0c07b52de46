"""`savermark sandbox`: the sandbox checkpoint stores, measured and proved."""

from __future__ import annotations

from importlib import import_module

import click

# Verb -> its one-line help; each is imported when asked for.
VERBS = {
    "run": "Run sandbox workloads on pairs of a checkpoint store and a blob store, measured.",
    "conformance": "Try every rule of the sandbox checkpoint store on any store.",
}


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"savermark.cli.sandbox_{cmd_name}").command
        command.short_help = VERBS[cmd_name]
        return command


@click.group("sandbox", cls=_Verbs, epilog="Example: savermark sandbox run sandbox-coding-agent")
def command() -> None:
    """Measure and prove stores of sandbox checkpoints (docs/sandbox.md)."""
