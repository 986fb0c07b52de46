"""The pytest plugin as an author of a saver or an application uses it: pytest runs pytest."""

from __future__ import annotations

import pytest

# Runs inside this process find these imported, and take a tenth of the time.
import savermark.contract.report
import savermark.retention.apply  # noqa: F401

pytest_plugins = ["pytester"]

APP = """
    from langgraph.checkpoint.memory import InMemorySaver

    from savermark.history.arows import arow_access
    from savermark.history.rows import row_access
    from savermark.retention.apply import apply
    from savermark.retention.policy import parse_policy

    class MySaver(InMemorySaver):
        pass

    def prune(saver, threads, protect):
        policy = parse_policy("keep-latest")
        return list(apply(row_access(saver), policy, threads=threads, protect=protect))

    async def aprune(saver, threads, protect):
        policy = parse_policy("keep-latest")
        async with arow_access(saver) as rows:
            return await rows.run(
                lambda rows: list(apply(rows, policy, threads=threads, protect=protect))
            )

    def naive(saver, threads, protect):
        for thread in threads:
            for space, rows in saver.storage[thread].items():
                for gone in sorted(rows)[:-1]:
                    del rows[gone]

    def refusing(saver, threads, protect):
        raise NotImplementedError("no threads of yours")

    not_a_function = 7
"""


QUIET = ("-p", "no:cacheprovider", "-p", "no:asyncio")  # as in our own options


@pytest.fixture
def app(pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder with somebody's application and no tests."""
    pytester.makepyfile(app=APP)
    pytester.makeini("[pytest]\nfilterwarnings = error\n")
    pytester.syspathinsert()
    return pytester


def test_a_right_prune_passes_with_a_report(app: pytest.Pytester) -> None:
    options = ["--savermark-contract=app:prune", "--savermark-saver=app:MySaver"]
    done = app.runpytest_subprocess(*QUIET, *options)
    assert done.ret == 0, str(done.stdout)
    assert "24 passed" in str(done.stdout)
    assert "app:prune on app:MySaver" in str(done.stdout)
    assert "A full: ok: a thread that grows (1 of 18 checkpoints are left)" in str(done.stdout)


def test_a_wrong_prune_fails_with_the_rules_it_broke(app: pytest.Pytester) -> None:
    chosen = ["--savermark-scenario=A", "--savermark-scenario=D", "--savermark-mode=delta"]
    done = app.runpytest_inprocess(*QUIET, "--savermark-contract=app:naive", *chosen)
    assert done.ret == 1, str(done.stdout)
    assert "2 failed" in str(done.stdout)
    assert "FAILED savermark-contract::A-delta" in str(done.stdout)
    assert "FAILED latest resume: the newest state: channel 'messages' reads back" in str(
        done.stdout
    )
    assert "FAILED the thread goes on as its twin" in str(done.stdout)
    assert "Traceback" not in str(done.stdout)


def test_an_async_prune_runs_on_the_async_methods(app: pytest.Pytester) -> None:
    chosen = ["--savermark-saver=sqlite", "--savermark-scenario=I2"]
    done = app.runpytest_inprocess(*QUIET, "--savermark-contract=app:aprune", *chosen)
    assert done.ret == 0, str(done.stdout)
    assert "2 passed" in str(done.stdout)


def test_a_refusal_is_a_skip(app: pytest.Pytester) -> None:
    done = app.runpytest_inprocess(
        *QUIET, "--savermark-contract=app:refusing", "--savermark-scenario=A", "-rs"
    )
    assert done.ret == 0, str(done.stdout)
    assert "2 skipped" in str(done.stdout)
    assert "no threads of yours" in str(done.stdout)


def test_other_tests_and_the_k_option_work_beside_it(app: pytest.Pytester) -> None:
    app.makepyfile(test_mine="def test_mine(): pass")
    done = app.runpytest_inprocess(
        *QUIET, "--savermark-contract=app:prune", "-k", "mine or E1-full"
    )
    assert "2 passed, 23 deselected" in str(done.stdout), str(done.stdout)


def test_the_fixture_runs_it_within_a_test(app: pytest.Pytester) -> None:
    app.makepyfile(
        test_mine="""
            from app import MySaver, aprune, naive, prune

            def test_right(savermark_contract):
                rows = savermark_contract(prune, saver=MySaver(), scenarios=["A"])
                assert all(row.ok for row in rows)

            def test_async(savermark_contract):
                savermark_contract(aprune, saver=MySaver(), scenarios=["A"], modes=["full"])

            def test_default_saver(savermark_contract):
                assert savermark_contract(prune, scenarios=["C"])

            def test_wrong(savermark_contract):
                savermark_contract(naive, scenarios=["A"], modes=["delta"])
        """
    )
    done = app.runpytest_inprocess(*QUIET)
    assert "1 failed, 3 passed" in str(done.stdout), str(done.stdout)
    assert "A delta: FAILED: a thread that grows" in str(done.stdout)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--savermark-contract=app:prun"], "did you mean 'prune'?"),
        (["--savermark-contract=app"], "not of the form package.module:function"),
        (["--savermark-contract=nothere:prune"], "cannot be imported"),
        (["--savermark-contract=app:not_a_function"], "name a function"),
        (["--savermark-contract=app:prune", "--savermark-saver=sqlit"], "did you mean 'sqlite'?"),
        (["--savermark-contract=app:prune", "--savermark-scenario=Z"], "unknown scenario 'Z'"),
    ],
)
def test_a_wrong_option_is_one_line(app: pytest.Pytester, options: list[str], told: str) -> None:
    done = app.runpytest_inprocess(*QUIET, *options)
    assert done.ret == 4
    (line,) = [line for line in str(done.stderr).splitlines() if line.strip()]
    assert line.startswith("ERROR: ")
    assert told in line


def test_nothing_is_imported_until_it_is_asked_for(app: pytest.Pytester) -> None:
    app.makepyfile(
        test_mine="""
            import sys

            def test_mine():
                heavy = ("langgraph", "langchain_core", "pandas", "savermark.contract")
                assert [name for name in heavy if name in sys.modules] == []
                assert "savermark.pytest_plugin" in sys.modules
        """
    )
    done = app.runpytest_subprocess(*QUIET, "-p", "no:langsmith_plugin")
    assert "1 passed" in str(done.stdout), str(done.stdout)
