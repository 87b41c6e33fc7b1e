.DEFAULT_GOAL := help
.PHONY: help venv demo test check bench-core bench-log bench-load lock clean

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP) ## make the virtual environment in .venv, with everything below needs

demo: venv ## run an example topology and show its results as a table
	$(BIN)/python -m examples.demo

test: venv ## run the tests and the doctests of package, README and docs
	$(BIN)/pytest -q -n $(WORKERS)

check: venv ## lint (ruff), types (mypy, strict) and the rules of the house
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -q tests/test_house.py

bench-core: venv ## measure records per second through the task, beside a hand-written loop
	$(BIN)/python -m benchmarks.core

bench-log: venv ## measure records per second into and out of the embedded log, beside a bare loop
	$(BIN)/python -m benchmarks.log

bench-load: venv ## count ten million records over a million keys, and watch rate and memory
	$(BIN)/python -m benchmarks.load

lock: ## pin the newest allowed dependencies in requirements.lock (needs uv)
	uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --upgrade --quiet \
		--no-header --no-annotate --no-emit-index-url --output-file requirements.lock

clean: ## remove the virtual environment, caches and build results
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is written last: an interrupted installation is done again.
$(STAMP): requirements.lock pyproject.toml
	@for python in python3 python3.13 python3.12 python3.11; do \
		if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
		echo "Headwater needs Python 3.11 or newer on the PATH; python3 is: $$(python3 --version 2>&1)" >&2; exit 1; \
	fi; \
	$(BIN)/python -c '' 2>/dev/null || { echo "Making $(VENV) with $$($$found --version)"; $$found -m venv --clear $(VENV); }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@
