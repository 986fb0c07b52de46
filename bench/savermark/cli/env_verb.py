"""`savermark env`: what decides the numbers on this machine."""

from __future__ import annotations

import click

from savermark.cli.output import emit_frame, emit_json, format_option


@click.command("env", epilog="Example: savermark env --format json")
@format_option
def command(fmt: str) -> None:
    """Print host, Python, library versions and settings as a result would record them."""
    import pandas as pd

    from savermark.environment import capture_environment

    facts = capture_environment()
    if fmt == "json":
        emit_json(facts)
        return
    rows = [{"fact": key, "value": value} for key, value in _flatten("", facts)]
    emit_frame(pd.DataFrame(rows, columns=["fact", "value"]), fmt)


def _flatten(prefix: str, facts: object) -> list[tuple[str, object]]:
    if not isinstance(facts, dict):
        return [(prefix, facts)]
    found: list[tuple[str, object]] = []
    for key, value in facts.items():
        found += _flatten(f"{prefix}.{key}" if prefix else str(key), value)
    return found
