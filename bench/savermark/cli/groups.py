"""A group whose verbs are files of this folder, imported when asked for.

pandas and matplotlib take longer to import than most verbs take to run.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from savermark.errors import unknown


class VerbGroup(click.Group):
    """The verbs of a table `name -> one-line help`; `module` makes a verb's module of its name."""

    def __init__(self, *args: Any, verbs: Mapping[str, str], module: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.verbs = verbs
        self._module = module

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.verbs:
            return None
        name = self._module.format(cmd_name.replace("-", "_"))
        command: click.Command = import_module(f"savermark.cli.{name}").command
        command.short_help = self.verbs[cmd_name]
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.verbs and not args[0].startswith("-"):
            raise click.UsageError(unknown("verb", args[0], self.verbs), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(self.verbs.items()))
