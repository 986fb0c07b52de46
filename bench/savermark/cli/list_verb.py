"""`savermark list`: what there is to name on the command line."""

from __future__ import annotations

from pathlib import Path

import click

from savermark.cli.output import emit_frame, format_option

KINDS = ("workloads", "backends", "profiles", "results")


@click.command("list", epilog="Example: savermark list workloads")
@click.argument("kind", type=click.Choice(KINDS))
@click.option(
    "--results-dir",
    type=click.Path(path_type=Path),
    default=Path("results/local"),
    show_default=True,
    help="Where `list results` looks.",
)
@format_option
def command(kind: str, results_dir: Path, fmt: str) -> None:
    """List workloads, backends, profiles or results.

    Backends come from the entry-point group savermark.backends; any other saver can be measured
    as package.module:factory.
    """
    import pandas as pd

    rows = {
        "workloads": _workloads,
        "backends": _backends,
        "profiles": _profiles,
        "results": lambda: _results(results_dir),
    }[kind]()
    emit_frame(pd.DataFrame(rows), fmt)


def _workloads() -> list[dict[str, str]]:
    from savermark.spec import load_workload, workload_names

    rows = []
    for name in workload_names():
        variants = load_workload(name)
        labels = ", ".join(variant.label for variant in variants if variant.label)
        summary = variants[0].spec.summary
        rows.append({"workload": name, "variants": labels or "–", "summary": summary})
    return rows


def _backends() -> list[dict[str, str]]:
    from savermark.backends.registry import backend_names, get_backend
    from savermark.errors import BackendError

    rows = []
    for name in backend_names():
        try:
            title = get_backend(name).title
        except BackendError as error:
            title = f"not usable: {error}"
        rows.append({"backend": name, "what it is": title})
    return rows
