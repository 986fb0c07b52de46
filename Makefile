# Everything here does its own set-up: a virtual environment with pinned dependencies, then the job.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: bench test perf lint format reference clean

bench: $(VENV)/.installed
	$(BIN)/savermark run --profile quick

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 2 --dist worksteal

perf: $(VENV)/.installed-dev
	$(BIN)/python tests/perf
	@mkdir -p results/local
	$(BIN)/python -m pytest tests/perf/bench_walks.py --benchmark-json=results/local/walks.json

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'savermark needs Python 3.11 or newer: make PYTHON=python3.11 ...' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.created pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.created pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt -e '.[dev,deepagents,s3]'
	@touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) results/local
