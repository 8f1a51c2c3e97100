# Variables that can be overridden, as in `make test PYTEST=-x`, `make bench BENCH=engine` or `make dev LEANOPS_PORT=3001`.
PYTHON ?= python3
PYTEST ?=
BENCH ?=
LEANOPS_HOME ?= .leanops
export LEANOPS_HOME
unexport VIRTUAL_ENV

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
REQUIRE_PYTHON := import sys; sys.exit(0 if sys.version_info >= (3, 11) else "error: Lean-Ops needs Python 3.11 or \
newer, and $(PYTHON) is " + sys.version.split()[0] + ". Name a newer one: make PYTHON=python3.12")

.DEFAULT_GOAL := help
.PHONY: help demo dev test test-long bench lint format lock clean

##@ Use it
demo: $(READY) ## Land sample messages of six topics and run the main job on them, on embedded defaults
	@$(BIN)/leanops demo

dev: $(READY) ## Open the Dagster UI with daemon, sensors and schedules running
	@$(BIN)/leanops dev

clean: ## Stop this home's Spark server and remove LEANOPS_HOME, the virtual environment and all caches
	@if [ -x $(BIN)/leanops ] && [ -d "$(LEANOPS_HOME)" ]; then $(BIN)/leanops spark stop; fi
	rm -rf "$(LEANOPS_HOME)" $(VENV) .ruff_cache .mypy_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

##@ Work on it
test: $(READY) ## Run all tests but the long searches
	@$(BIN)/pytest -m "not long" $(SHARED) $(PYTEST)

test-long: $(READY) ## Run the long searches too (700 topics, more property cases)
	@$(BIN)/pytest $(SHARED) $(PYTEST)
# Two processes share the tests and one Spark server. Each takes file by file, in order: what a file has set up is set up once,
# and the small files of tests/unit come last, so that both are done at about the same time.
SHARED := --numprocesses 2 --dist loadfile --no-loadscope-reorder

bench: $(READY) ## Measure speed and memory, and write benchmarks/results.md
	@$(BIN)/python -m benchmarks $(BENCH)

lint: $(READY) ## Check style, types and the direction of imports
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

format: $(READY) ## Write the code the way `make lint` wants it
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lock: $(READY) ## Lock the newest versions that pyproject.toml allows
	@$(BIN)/uv pip compile $(LOCK) --group bootstrap --output-file requirements-bootstrap.lock
	@$(BIN)/uv pip compile $(LOCK) pyproject.toml --output-file requirements.lock
	@$(BIN)/uv pip compile $(LOCK) pyproject.toml --group dev --constraints requirements.lock --output-file requirements-dev.lock
LOCK := --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url

##@ Help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The set-up that everything else needs: paid for once, and again only when a lock changes.
$(READY): requirements-bootstrap.lock requirements-dev.lock pyproject.toml
	@$(PYTHON) -c '$(REQUIRE_PYTHON)'
	@$(PYTHON) leanops_resources/spark/java.py
	@echo "Setting up $(VENV) (once; two minutes or so) …"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-bootstrap.lock
	@$(BIN)/uv pip install --quiet --compile-bytecode --require-hashes --no-build-isolation-package pyspark -r requirements-dev.lock
	@$(BIN)/uv pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

