# make demo and make test work in a fresh clone: the first call creates the environment.
PYTHON ?= python3
# The oldest allowed versions: make test ENV=.venv-min CONSTRAINTS=constraints-min.txt
ENV ?= .venv
CONSTRAINTS ?= constraints.txt
BIN := $(ENV)/bin
# Python compiles the modules that it imports; compiling all of torch first would take longer than make demo.
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check --no-compile
# One thread per test worker: more threads than cores slow the tests down.
PYTEST := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -q

.DEFAULT_GOAL := help
.PHONY: help demo test test-all check docs tables bench release clean

help:
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# The environment with one extra. torch is installed first, in an exact version: the default wheels include gigabytes of CUDA libraries.
$(BIN)/.%: pyproject.toml $(CONSTRAINTS)
	test -x $(BIN)/python || $(PYTHON) -m venv $(ENV)
	$(PIP) "$$(grep '^torch==' $(CONSTRAINTS))"
	$(PIP) -c $(CONSTRAINTS) -e '.[$*]'
	touch $@

demo: $(BIN)/.app  ## Train plain and unbiased models on noisy labels and compare them (under a minute)
	$(BIN)/ccmn demo

test: $(BIN)/.test  ## Run the tests, doctests and README examples, without slow tests
	$(PYTEST) -n 2 -m 'not slow' --ignore=tests/browser --ignore=tests/cluster

# Slow: processes that are killed, memory limits, simulations. Robustness: a campaign of MINUTES (seed SEED); with 10
# minutes or more it includes torchrun. Cluster: Ray listens on all interfaces and therefore runs in a network of its own.
# Browser: Playwright controls the Chromium of the system.
MINUTES ?= 1
SEED ?= 0
test-all: test  ## Run all tests: also slow ones, robustness (MINUTES=1 SEED=0), recipes, cluster and browser
	$(PIP) -c $(CONSTRAINTS) -r requirements/recipes.txt -r requirements/cluster.txt -r requirements/browser.txt
	$(PYTEST) -n 2 -m slow --ignore=tests/browser --ignore=tests/cluster
	OMP_NUM_THREADS=1 $(BIN)/python tests/robustness/campaign.py --minutes $(MINUTES) --seed $(SEED)
	OMP_NUM_THREADS=1 CCMN_CLUSTER=1 .ci/own-network 900 $(BIN)/python -m pytest -q tests/cluster -o faulthandler_timeout=300 -o faulthandler_exit_on_timeout=true
	@if command -v chromium || command -v chromium-browser || command -v google-chrome; then CCMN_SCREENSHOTS=screenshots $(PYTEST) tests/browser; \
	    else echo "Chromium is not installed: the browser tests were skipped. Debian: apt-get install chromium"; fi

check: $(BIN)/.dev  ## Run ruff, codespell, mypy --strict on src, import contracts, docstring checks and size limits
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST) tests/test_docstrings.py
	$(BIN)/python tests/size.py

docs: $(BIN)/.test $(BIN)/.docs  ## Build the documentation in docs/_build/html
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

tables: $(BIN)/.app  ## Reproduce tables 1 to 3 of the paper and write a report (resumable; hours on a CPU)
	$(BIN)/ccmn reproduce all --store results.db
	$(BIN)/ccmn report results.db --out results.html --force

bench: $(BIN)/.dev  ## Run all benchmarks in full and draw the figures (on an idle machine)
	for script in $$(grep -l '^def main' benchmarks/*.py) examples/[0-9]*.py; do $(BIN)/python $$script || echo "$$script failed"; done

# UPLOAD=yes uploads the files; otherwise the command is only printed.
release: $(BIN)/.dev  ## Check, build and test the files of a release (RELEASING.md); UPLOAD=yes also uploads them
	$(BIN)/python .ci/check-release
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(PIP) twine
	$(BIN)/python -m twine check --strict dist/*
	bash .ci/smoke-wheel dist/*.whl $(CONSTRAINTS)
	@if [ "$(UPLOAD)" = yes ]; then $(BIN)/python -m twine upload dist/*; else \
	    echo "The files in dist/ are ready. To upload them: make release UPLOAD=yes"; fi

clean:  ## Remove the environments and all build outputs
	rm -rf .venv .venv-min build dist docs/_build docs/generated .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache src/*.egg-info
