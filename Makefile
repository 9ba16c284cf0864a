# make demo | make test: everything from a fresh clone, set-up included; quick the second time.
PYTHON ?= python3
BIN := .venv/bin
# One thread per test worker: two busy processes of two threads each collapse on two cores.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

.DEFAULT_GOAL := help
.PHONY: help demo test test-browser test-cluster test-recipes docs table check format bench figures wheel clean

help:
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# torch first and by its exact version: a looser spec would fetch gigabytes of accelerator libraries.
$(BIN)/.ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --disable-pip-version-check "$$(grep '^torch==' constraints.txt)"
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: $(BIN)/.ready  ## noisy labels in, plain and unbiased models trained and compared (under a minute)
	$(BIN)/ccmn demo

test: $(BIN)/.ready  ## the tests, doctests and README examples
	$(ONE_THREAD) $(BIN)/python -m pytest -q -n 2

# Chromium comes from the system, since playwright's own is a download of its own; playwright drives it.
test-browser: $(BIN)/.ready  ## the pages in a real browser (needs Chromium); screenshots go to screenshots/
	@command -v chromium || command -v chromium-browser || command -v google-chrome || { echo "There is no Chromium \
	on this machine. Debian: apt-get install --no-install-recommends chromium fonts-dejavu-core. Ubuntu: \
	snap install chromium. Fedora: dnf install chromium. Then make test-browser again."; exit 1; }
	$(BIN)/python -c 'import playwright' 2> /dev/null || \
	    $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[browser]'
	$(ONE_THREAD) CCMN_SCREENSHOTS=screenshots $(BIN)/python -m pytest -q tests/browser

# In a network of its own, since Ray listens on every interface; a test that hangs says where, and then all ends.
test-cluster: $(BIN)/.ready  ## the Ray engine on a real cluster of two nodes on this machine, one of them killed
	$(BIN)/python -c 'import ray' 2> /dev/null || \
	    $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[ray]'
	$(ONE_THREAD) CCMN_CLUSTER=1 .ci/own-network 900 $(BIN)/python -m pytest -q tests/cluster \
	    -o faulthandler_timeout=300 -o faulthandler_exit_on_timeout=true

docs: $(BIN)/.ready  ## the documentation site, into docs/_build/html: open index.html there
	$(BIN)/python -c 'import furo, myst_parser, numpydoc, sphinx, sphinx_gallery' 2> /dev/null || \
	    $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[docs]'
	$(ONE_THREAD) $(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

# What the recipes are about is large, and only they need it: installed when first asked for.
test-recipes: $(BIN)/.ready  ## the recipes of examples/recipes as they stand, with the tools they are about
	$(BIN)/python -c 'import importlib.util as u; assert all(map(u.find_spec, \
	    "lightning transformers accelerate skorch cleanlab".split()))' 2> /dev/null || \
	    $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[recipes]'
	$(ONE_THREAD) $(BIN)/python -m pytest -q -n 2 tests/test_recipes.py

# SMALL=1: two repeats of ten epochs on bundled data. Otherwise every data set at hand, hours on a CPU.
table: $(BIN)/.ready  ## tables 1 to 3 of the paper, resumable, and a page of them; SMALL=1: in a minute
	$(BIN)/ccmn reproduce $(if $(SMALL),table1 --small --store small.db,all --store results.db)
	$(BIN)/ccmn report $(if $(SMALL),small.db,results.db) --out $(if $(SMALL),small.html,results.html) --force

check: $(BIN)/.ready  ## Run ruff, codespell, mypy --strict on src and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(BIN)/.ready  ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(BIN)/.ready  ## every benchmark, whole (use an idle machine)
	for script in $$(grep -l '^def main' benchmarks/*.py); do $(BIN)/python $$script || echo "$$script: no result here"; done

figures: $(BIN)/.ready  ## the committed figures, drawn anew
	for script in examples/[0-9]*.py; do $(BIN)/python $$script || exit 1; done

wheel: $(BIN)/.ready  ## build, then install and smoke-test the wheel in a clean environment outside the checkout
	rm -rf dist
	$(BIN)/python -m build --wheel --outdir dist .
	bash .ci/smoke-wheel dist/*.whl constraints.txt

clean:  ## remove the environment and everything built
	rm -rf .venv build dist docs/_build docs/generated .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache src/*.egg-info
