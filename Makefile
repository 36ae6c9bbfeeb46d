# Each target works on a fresh clone with nothing but Python 3.11+ and make: it sets up .venv first, once.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip --disable-pip-version-check install --quiet
PIP := $(INSTALL) --constraint requirements.lock
TICK = ( while sleep 15 >/dev/null 2>&1; do echo "$$(date +%T)  $$(ls $(BIN)/../lib/*/site-packages | grep -c dist-info) of \
	$$(grep -c == requirements.hashes) packages installed"; done ) & trap "kill $$!" EXIT; # what follows may take minutes
HASHES ?= yes # HASHES= where a mirror has built its packages anew

.PHONY: help setup reproduce evidence test test-fast lint bench torture fuzz docs clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' Makefile

setup: .venv/.installed  ## Make .venv and install vpac with what its tests need

.venv/.installed: pyproject.toml requirements.lock requirements.hashes
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("vpac needs Python 3.11 or later, found %d.%d; try make PYTHON=python3.12" % v[:2])'
	@echo "Setting up .venv (once; a minute or two) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(TICK) if [ -n "$(strip $(HASHES))" ]; then $(INSTALL) --require-hashes --requirement requirements.hashes; fi
	@$(TICK) $(PIP) $(if $(strip $(HASHES)),--no-deps) --editable ".[dev]"
	@$(BIN)/python -m compileall -q src
	@touch $@
	@echo "Set up: $(BIN)/vpac --help"

.venv/.docs: .venv/.installed
	@echo "Installing what the documentation needs (once) ..."
	@$(PIP) --editable ".[docs]"
	@touch $@

.venv/.bench: .venv/.installed
	@echo "Installing what the deep learners are measured against (once) ..."
	@$(PIP) torch
	@$(PIP) --editable ".[deep,mujoco,envpool,bench]"
	@touch $@

.venv/.functional: .venv/.installed
	@echo "Installing Minari, gymnax, which needs an older Gymnasium, and rejax, which needs an older gymnax (once) ..."
	@$(PYTHON) -m venv .venv/gymnax
	@.venv/gymnax/bin/python -m pip --disable-pip-version-check install --quiet --editable ".[deep,functional]" "minari[hdf5]" pytest hypothesis
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet --target .venv/rejax rejax
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet --target .venv/rejax --upgrade --no-deps gymnax==0.0.9
	@touch $@

.venv/.trackers: .venv/.installed
	@echo "Installing trackers and a job shop with masked actions (once) ..."
	@$(PYTHON) -m venv .venv/trackers
	@.venv/trackers/bin/python -m pip --disable-pip-version-check install --quiet --editable ".[deep,wandb,mlflow,trackio]" JSSEnv pytest pytest-timeout hypothesis
	@touch $@

.venv/.browser: .venv/.installed tests/browser/install.sh
	@if sh tests/browser/install.sh; then touch $@; elif [ -n "$$CI" ]; then exit 1; fi

reproduce: setup  ## Set up, then rerun the paper's experiments; the page is results/report/index.html
	@echo "Rerunning the paper's experiments (five to eight minutes on two cores the first time) ..."
	@$(BIN)/vpac reproduce

EVIDENCE := objective rivals oversampling sided budgets limits measures families parity score paired

evidence: .venv/.bench  ## Set up, then measure what is missing of every study of docs/evidence.md but the paper's deep table (hours; resumes)
	@$(BIN)/vpac reproduce evidence
	@for script in $(EVIDENCE); do echo "== benchmarks/$$script.py"; $(BIN)/python benchmarks/$$script.py || \
		echo "benchmarks/$$script.py: not every goal was met, see above"; done
	@$(BIN)/python docs/glance.py --write

test: setup .venv/.browser  ## Set up, with a Chromium if there is none, then run all tests
	@echo "Running the tests ..."
	@PYTEST_XDIST_AUTO_NUM_WORKERS=$${PYTEST_XDIST_AUTO_NUM_WORKERS:-$$(( ($$(nproc) * 3 + 1) / 2 ))} $(BIN)/pytest -n auto --dist worksteal # many wait

# The quickest telling tests of every package, by measured processor time: about 110 s in all
FAST := tests/envs tests/oracle tests/risk tests/lab/experiments $(addprefix tests/, \
	test_algorithms.py test_architecture.py test_docs.py test_files.py test_ratchet.py test_saved.py \
	$(addprefix tabular/test_, by_hand.py diverging.py enumeration.py features.py mistakes.py mvpi.py ratios.py storage.py) \
	$(addprefix deep/test_, bookkeeping.py context.py estimators.py history.py improve.py presets.py) \
	evaluation/test_evaluate.py evaluation/test_parts.py cli/test_completion.py cli/test_messages.py cli/test_numbers.py \
	lab/kinds/test_theorems.py lab/store/test_store.py lab/workers/test_batches.py lab/report/test_results.py lab/report/test_trade_off.py \
	faults/test_reading.py untrusted/test_lint.py)
LEFT_OUT := $(addprefix --ignore=tests/, envs/test_functional.py oracle/test_bound.py oracle/test_frontier.py oracle/test_incremental.py \
	oracle/test_remembering.py risk/test_limits_held.py risk/test_monitoring.py)

test-fast: setup  ## Set up, then run the quick tests: about a minute
	@$(BIN)/pytest -n auto --dist worksteal -q -m "not slow" $(LEFT_OUT) $(FAST)

lint: setup  ## Set up, then check style and types
	@echo "Checking style and types ..."
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/mypy --config-file benchmarks/mypy.ini

bench: .venv/.bench .venv/.functional .venv/.trackers  ## Set up, with the libraries to compare with, then measure every speed claim (takes half an hour)
	@$(BIN)/pytest -q tests/deep/test_sb3.py tests/examples tests/evaluation/test_stable_baselines.py -k "sb3 or one_file or stable"
	@.venv/gymnax/bin/python -m pytest -q -p no:cacheprovider tests/envs/test_gymnax.py tests/evaluation/test_minari.py
	@.venv/trackers/bin/python -m pytest -q -p no:cacheprovider tests/deep/test_trackers.py tests/deep/test_masks.py -k "tracker or biases or mlflow or trackio or job_shop"
	@$(BIN)/python benchmarks/compiled.py --rejax .venv/rejax --gymnax $$(echo .venv/gymnax/lib/python*/site-packages) || \
		echo "benchmarks/compiled.py: not every claim was kept, see above"
	@for script in oracle tabular scheduler deep; do echo "== benchmarks/$$script.py"; \
		$(BIN)/python benchmarks/$$script.py || echo "benchmarks/$$script.py: not every claim was kept, see above"; done

torture: setup  ## Set up, then kill, stop and damage studies and runs a hundred times each; prints a table (hours)
	@$(BIN)/python benchmarks/torture.py

fuzz: setup  ## Set up, then fuzz every reader: ten thousand fixed cases, then ten minutes (SECONDS=… for longer) of others
	@VPAC_FUZZ=4 $(BIN)/pytest -n auto -q tests/untrusted/test_fuzz.py
	@$(PIP) --only-binary :all: atheris || echo "atheris does not install here: going by chance"
	@cd tests && ../$(BIN)/python -m untrusted.fuzz $(or $(SECONDS),600)

docs: .venv/.docs  ## Set up, then build the documentation into site/
	@echo "Building the documentation ..."
	@$(BIN)/python docs/pages.py
	@$(BIN)/zensical build --strict --clean > build/docs.log 2>&1 || { cat build/docs.log; exit 1; }
	@echo "Built: site/index.html"

clean:  ## Remove what the other targets made, except results/
	@rm -rf .venv site build dist .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
