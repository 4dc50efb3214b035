# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed
DEV := $(VENV)/.installed-dev

.PHONY: demo test test-long test-browser test-docs test-explore test-third-party test-faults lint format docs figures clean install
SEED ?= $(shell date +%s)
# With bytecode: otherwise pytest rewrites every test file anew, and every process that a test starts compiles shoal anew.
PYTEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n 2 --dist worksteal -q

demo: $(READY)  ## the same training in eight ways: one table, remarks, a report
	$(BIN)/shoal compare quickstart

test: $(DEV)  ## every test and doctest but the long ones; the same examples in every run
	$(PYTEST) -m "not long and not browser and not docs"

test-long: $(DEV)  ## the tests that take long: more launchers, faults and strangers among real processes
	$(PYTEST) -m long

test-browser: $(DEV)  ## the pages in Chromium: click, zoom, cut the network, axe
	@command -v chromium chromium-browser google-chrome >/dev/null || \
	  { echo "there is no Chromium: install it with apt-get install chromium"; exit 2; }
	$(BIN)/pip install --quiet --constraint constraints.txt --requirement tests/browser/requirements.txt
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n 0 -m browser tests/browser

test-docs: $(DEV)  ## type the commands of the guide, and compare what they print with its pages
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n 0 -m docs tests/test_guide_commands.py

test-explore: $(DEV)  ## the property tests with new random examples; SEED=n repeats a run
	@echo "Random examples of seed $(SEED); repeat this run with: make test-explore SEED=$(SEED)"
	$(PYTEST) -m hypothesis \
	  --hypothesis-profile=explore --hypothesis-seed=$(SEED) \
	  || { echo "Failed with seed $(SEED); repeat with: make test-explore SEED=$(SEED)"; exit 1; }

THIRD_PARTY := .venv-third-party

test-third-party: $(THIRD_PARTY)/.installed  ## Lightning, accelerate and the HF Trainer with our wrapper: torch's bits
	$(THIRD_PARTY)/bin/python tools/third_party.py

$(THIRD_PARTY)/.installed: examples/third_party/requirements.txt pyproject.toml constraints.txt
	$(PYTHON) -m venv $(THIRD_PARTY)
	$(THIRD_PARTY)/bin/pip install --quiet --constraint constraints.txt --editable . \
	  --requirement examples/third_party/requirements.txt
	@touch $@

test-faults: FAULT_SEED = $(if $(filter command line,$(origin SEED)),$(SEED),0)
test-faults: $(DEV)  ## drawn faults and malformed inputs, about 15 minutes; SEED=n draws others, JOBS=n runs n at a time
	OMP_NUM_THREADS=1 $(BIN)/python tests/faults/suite.py --seed $(FAULT_SEED) $(if $(JOBS),--jobs $(JOBS))

figures: $(DEV)  ## the figures of the guide, docs/figures: about 2 minutes of training
	OMP_NUM_THREADS=1 $(BIN)/python tools/figures.py

docs: $(DEV)  ## the guide as a site, build/site/index.html: both languages, with search, without a network
	NO_MKDOCS_2_WARNING=1 $(BIN)/python tools/guide.py
	@echo build/site/index.html

lint: $(DEV)  ## formatting, style, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright --warnings
	$(BIN)/lint-imports

format: $(DEV)  ## rewrite the code in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

install: $(DEV)  ## create .venv with everything, nothing else

# Bytecode is compiled here, because the first command would otherwise wait for it.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "shoal needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) -V): set PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	@$(BIN)/python -m compileall -q src
	@touch $@

# What the demo needs, and then the tests, linters and notebooks.
$(DEV): $(READY)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

clean:  ## forget the environment and the caches; runs/ stays
	rm -rf $(VENV) $(THIRD_PARTY) .pytest_cache .ruff_cache .import_linter_cache .hypothesis
