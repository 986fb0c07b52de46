"""`savermark sandbox conformance`: every rule of the sandbox stores, tried on any store."""

from __future__ import annotations

import click

from savermark.cli.output import Shown, emit_frame, format_option, quiet_option, remark

SHOWN: Shown = {
    "group": ("part", str),
    "rule": ("rule", str),
    "status": ("status", str),
    "says": ("what it says", str),
    "detail": ("what was seen", str),
}
BROKEN = 3  # exit code


@click.command("conformance", epilog="Example: savermark sandbox conformance my_store:open_store")
@click.argument("factory", metavar="MODULE:FACTORY")
@click.option("--instances", is_flag=True, help="The factory makes instance stores.")
@format_option
@quiet_option
def command(factory: str, instances: bool, fmt: str, quiet: bool) -> int:
    """Try every rule on fresh stores of FACTORY, a function that takes `StoreOptions`.

    Optional parts that the store does not have are skipped. Exits 3 when a rule is broken.
    """
    import pandas as pd

    from savermark.sandbox.testkit import RuleStatus, run_conformance
    from savermark.sandbox.testkit.load import load_factory

    report = run_conformance(load_factory(factory), instances=instances)
    frame = pd.DataFrame(
        [
            {
                "group": item.group,
                "rule": item.rule,
                "status": str(item.status),
                "says": item.says,
                "detail": item.detail,
            }
            for item in report.results
        ]
    )
    emit_frame(frame, fmt, show=SHOWN, title=factory)
    counts = ", ".join(f"{report.count(status)} {status}" for status in RuleStatus)
    remark(f"{factory}: {counts}", quiet=quiet)
    return 0 if report.ok else BROKEN
