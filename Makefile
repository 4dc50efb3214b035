# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed

.PHONY: demo test lint format clean install

demo: $(READY)  ## the same training by every strategy: one table, a verdict, a report
	$(BIN)/shoal compare quickstart

test: $(READY)  ## every test and doctest
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal -q

lint: $(READY)  ## formatting, style, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright --warnings
	$(BIN)/lint-imports

format: $(READY)  ## rewrite the code in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

install: $(READY)  ## create .venv and install, nothing else

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "shoal needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) -V): set PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)

clean:  ## forget the environment and the caches; runs/ stays
	rm -rf $(VENV) .pytest_cache .ruff_cache .import_linter_cache .hypothesis
