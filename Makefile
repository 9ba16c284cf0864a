# make demo and make test work in a fresh clone: the first call creates the environment .venv.
PYTHON ?= python3
BIN := .venv/bin
# One thread per test worker: more threads than cores slow the tests down.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-browser test-cluster test-recipes test-robustness test-minimum audit-dependencies docs table check format bench figures wheel release clean

help:
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

# torch is installed first, in an exact version: the default wheels include gigabytes of CUDA libraries.
$(BIN)/.ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --disable-pip-version-check "$$(grep '^torch==' constraints.txt)"
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: $(BIN)/.ready  ## Train plain and unbiased models on noisy labels and compare them (under a minute)
	$(BIN)/ccmn demo

test: $(BIN)/.ready  ## Run the tests, doctests and README examples, without slow tests
	$(ONE_THREAD) $(BIN)/python -m pytest -q -n 2 -m 'not slow' --ignore=tests/browser --ignore=tests/cluster

# Processes that are killed, memory limits, long simulations. Clusters, recipes and the browser have their own targets.
test-slow: $(BIN)/.ready  ## Run the slow tests
	$(ONE_THREAD) $(BIN)/python -m pytest -q -n 2 -m slow tests --ignore=tests/browser --ignore=tests/cluster \
	    --ignore=tests/test_recipes.py

# Malformed files, kills, faults and extreme numbers: counts per outcome. The campaigns share the time; with 10 minutes or
# more they include torchrun and Ray.
MINUTES ?= 1
SEED ?= 0
test-robustness: $(BIN)/.ready  ## Run the robustness campaigns for MINUTES=1 minutes (SEED=0)
	$(ONE_THREAD) $(BIN)/python tests/robustness/campaign.py --minutes $(MINUTES) --seed $(SEED)

# The oldest versions that pyproject.toml allows, in an environment of their own.
test-minimum:  ## Run the fast tests with the minimum versions of all dependencies (constraints-min.txt)
	test -x .venv-min/bin/python || $(PYTHON) -m venv .venv-min
	.venv-min/bin/python -m pip install -q --disable-pip-version-check -c constraints-min.txt "$$(grep '^torch==' constraints-min.txt)"
	.venv-min/bin/python -m pip install -q --disable-pip-version-check -c constraints-min.txt -e '.[test]'
	$(ONE_THREAD) .venv-min/bin/python -m pytest -q -n 2 -m 'not slow' tests --ignore=tests/browser --ignore=tests/cluster \
	    --ignore=tests/docs --ignore=tests/test_recipes.py --ignore=tests/test_docstrings.py

# pip-audit needs the vulnerability service of PyPI. Without it, the target fails with a message.
audit-dependencies: $(BIN)/.ready  ## List known vulnerabilities (pip-audit) and the licenses of all dependencies
	$(BIN)/python .ci/dependencies licenses
	$(BIN)/python -m pip_audit --version > /dev/null 2>&1 || $(BIN)/python -m pip install -q --disable-pip-version-check pip-audit
	$(BIN)/python .ci/dependencies audit

# Playwright controls the Chromium of the system, so that no other browser is downloaded.
test-browser: $(BIN)/.ready  ## Test the pages in Chromium; write screenshots to screenshots/
	@command -v chromium || command -v chromium-browser || command -v google-chrome || { echo "Chromium is not \
	installed. Debian: apt-get install --no-install-recommends chromium fonts-dejavu-core. Ubuntu: \
	snap install chromium. Fedora: dnf install chromium. Then run make test-browser again."; exit 1; }
	$(BIN)/python -c 'import playwright' 2> /dev/null || \
	    $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -r requirements/browser.txt
	$(ONE_THREAD) CCMN_SCREENSHOTS=screenshots $(BIN)/python -m pytest -q tests/browser

# Ray listens on all interfaces, so the tests run in a separate network namespace. A test that hangs prints its stack and
# ends the run.
test-cluster: $(BIN)/.ready  ## Test Ray's joblib backend on a local cluster of two nodes, one of which is killed
	$(BIN)/python -c 'import ray' 2> /dev/null || \
	    $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -r requirements/cluster.txt
	$(ONE_THREAD) CCMN_CLUSTER=1 .ci/own-network 900 $(BIN)/python -m pytest -q tests/cluster \
	    -o faulthandler_timeout=300 -o faulthandler_exit_on_timeout=true

docs: $(BIN)/.ready  ## Build the documentation in docs/_build/html
	$(BIN)/python -c 'import furo, myst_parser, numpydoc, sphinx, sphinx_gallery' 2> /dev/null || \
	    $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[docs]'
	$(ONE_THREAD) $(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

# The libraries of the recipes are large and needed only here: they are installed on first use. Those of the ONNX export
# need 110 MB.
test-recipes: $(BIN)/.ready  ## Run the recipes of examples/recipes and the ONNX export with the libraries they need
	$(BIN)/python -c 'import importlib.util as u; assert all(map(u.find_spec, \
	    "lightning transformers accelerate skorch cleanlab onnx onnxscript onnxruntime".split()))' 2> /dev/null || \
	    $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -r requirements/recipes.txt
	$(ONE_THREAD) $(BIN)/python -m pytest -q -n 2 tests/test_recipes.py
	$(ONE_THREAD) $(BIN)/python -m pytest -q -n 2 tests/models/test_to_torch.py -k onnx

# SMALL=1: two repeats of ten epochs on bundled data. Otherwise all available datasets, which takes hours on a CPU.
table: $(BIN)/.ready  ## Reproduce tables 1 to 3 of the paper (resumable) and write a report; SMALL=1 takes a minute
	$(BIN)/ccmn reproduce $(if $(SMALL),table1 --small --store small.db,all --store results.db)
	$(BIN)/ccmn report $(if $(SMALL),small.db,results.db) --out $(if $(SMALL),small.html,results.html) --force

check: $(BIN)/.ready  ## Run ruff, codespell, mypy --strict on src, the import contracts and the docstring checks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/test_docstrings.py

format: $(BIN)/.ready  ## Format the code and apply automatic fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(BIN)/.ready  ## Run all benchmarks in full (on an idle machine)
	for script in $$(grep -l '^def main' benchmarks/*.py); do $(BIN)/python $$script || echo "$$script failed"; done

figures: $(BIN)/.ready  ## Draw the committed figures
	for script in examples/[0-9]*.py; do $(BIN)/python $$script || exit 1; done

wheel: $(BIN)/.ready  ## Build the wheel and test it in a new environment outside the checkout
	rm -rf dist
	$(BIN)/python -m build --wheel --outdir dist .
	bash .ci/smoke-wheel dist/*.whl constraints.txt

# UPLOAD=yes uploads the files; otherwise the command is only printed.
release: $(BIN)/.ready  ## Check, build and test the files of a release (RELEASING.md); UPLOAD=yes also uploads them
	$(BIN)/python .ci/check-release
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -c 'import twine' 2> /dev/null || $(BIN)/python -m pip install -q --disable-pip-version-check twine
	$(BIN)/python -m twine check --strict dist/*
	bash .ci/smoke-wheel dist/*.whl constraints.txt
	@if [ "$(UPLOAD)" = yes ]; then $(BIN)/python -m twine upload dist/*; else \
	    echo "The files in dist/ are ready. To upload them: make release UPLOAD=yes"; fi

clean:  ## Remove the environment and all build outputs
	rm -rf .venv build dist docs/_build docs/generated .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache src/*.egg-info
