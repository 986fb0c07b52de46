"""`savermark list`: what there is to name on the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from savermark.cli.output import emit_frame, format_option

Rows = list[dict[str, Any]]

KINDS = ("workloads", "backends", "walks", "policies", "profiles", "results")


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
    """List workloads, backends, walks, policies, profiles or results.

    Backends come from the entry-point group savermark.backends; any other saver can be measured
    as package.module:factory.
    """
    import pandas as pd

    listed: dict[str, Callable[[], Rows]] = {
        "workloads": _workloads,
        "backends": _backends,
        "walks": _walks,
        "policies": _policies,
        "profiles": _profiles,
        "results": lambda: _results(results_dir),
    }
    emit_frame(pd.DataFrame(listed[kind]()), fmt)


def _workloads() -> Rows:
    from savermark.spec import (
        SANDBOX,
        SAVERS,
        WALKS,
        load_sandbox_workload,
        load_walk_workload,
        load_workload,
        workload_names,
    )

    rows: Rows = []
    loaders: tuple[tuple[Any, Callable[[str], Any]], ...] = (
        (SAVERS, load_workload),
        (SANDBOX, load_sandbox_workload),
        (WALKS, load_walk_workload),
    )
    for schema, load in loaders:
        for name in workload_names(schema.family):
            variants = load(name)
            labels = ", ".join(variant.label for variant in variants if variant.label)
            rows.append(
                {
                    "workload": name,
                    "run with": schema.verb,
                    "variants": labels or "–",
                    "summary": variants[0].spec.summary,
                }
            )
    return rows


def _backends() -> Rows:
    from savermark.backends.registry import backend_names, get_backend

    return _titles("backend", backend_names(), get_backend)


def _walks() -> Rows:
    from savermark.history.walks import walk, walk_names

    return _titles("walk", walk_names(), walk)


def _titles(kind: str, names: Iterable[str], get: Callable[[str], Any]) -> Rows:
    """What entry points registered; one of another package that cannot be loaded says why."""
    from savermark.errors import BackendError

    rows: Rows = []
    for name in names:
        try:
            title = get(name).title
        except BackendError as error:
            title = f"not usable: {error}"
        except AttributeError:  # of another package
            title = "not usable: it has no title"
        rows.append({kind: name, "what it is": title})
    return rows


def _policies() -> Rows:
    from savermark.retention.policy import RULES

    return [{"rule": rule, "what it does": text} for rule, text in RULES.items()]


def _profiles() -> Rows:
    from savermark.profiles import PROFILES

    return [
        {
            "profile": profile.name,
            "workloads": ", ".join(profile.workloads),
            "backends": ", ".join(profile.backends),
            "what it is": profile.summary,
        }
        for profile in PROFILES.values()
    ]


def _results(folder: Path) -> Rows:
    from savermark.results import list_runs

    return [
        {
            "result": run.run_id,
            "created": run.created_at,
            "profile": run.profile,
            "cases": run.cases,
            "trials": run.trials,
            "complete": "yes" if run.complete else "no: --resume goes on",
        }
        for run in list_runs(folder)
    ]
