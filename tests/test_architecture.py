"""The import order of the package: a module imports only from what stands above it."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "bench" / "savermark"

# Top to bottom. A name stands for the module or the folder; one tuple is one level, whose members
# may import one another only inside a folder.
ORDER = (
    "errors",
    "units",
    "spec",
    "payload",
    "script",
    "graphs",
    "storage",
    "meter",
    "records",
    "backends",
    "recording",
    "history",
    "retention",
    "contract",
    "conformance",
    "database",
    "sandbox",
    "environment",
    "results",
    "trial",
    "probe",
    "sandbox_trial",
    "walking",
    "families",
    "worker",
    "profiles",
    "runner",
    "installs",
    "stats",
    "frame",
    "checks",
    "compare",
    "ab",
    "baseline",
    "tracking",
    "published",
    "plots",
    "report",
    "cli",
    "benchmarking",
    "pytest_plugin",
)


def _imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            if node.module == "savermark":
                found |= {alias.name for alias in node.names}
            elif node.module.startswith("savermark."):
                found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("savermark.")}
    return found


def test_every_module_has_a_place() -> None:
    top = {path.stem if path.is_file() else path.name for path in PACKAGE.iterdir()}
    places = {name for name in top if not name.startswith("__") and name not in ("py", "templates")}
    assert places <= set(ORDER)


def test_modules_import_only_downward() -> None:
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if place.startswith("__"):  # the package's own face may import anything
            continue
        allowed = ORDER[: ORDER.index(place) + 1]
        wrong += [f"{path.name}: {name}" for name in _imports(path) if name not in allowed]
    assert wrong == []


def test_backends_are_named_only_in_their_folder() -> None:
    """No `if backend == ...`: outside backends/ no code compares with a backend's name."""
    names = {"memory", "sqlite", "postgres"}  # "null" is also a tag of the serializer
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        if "backends" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare):
                parts = [node.left, *node.comparators]
                literals = {p.value for p in parts if isinstance(p, ast.Constant)}
                if literals & names:
                    wrong.append(f"{path.name}:{node.lineno}")
    assert wrong == []
