# From a bare clone with Python 3.11 (or newer) and make:
#
#   make demo    score the demo store, print the table, write the results to build/demo
#   make test    the tests (a few minutes); make slow runs the long ones
#   make faults  breaks runs in two hundred ways and looks at what is left; make fuzz feeds readers
#   make drift   compares a table of numbers in other environments (BLAS, locale, numpy, Python)
#   make docs    the documentation, into build/docs; make notebooks executes those in examples/
#   make browser the tests that open the report in a browser (chromium, by apt-get where it is missing)
#
# Other Python: make PYTHON=/path/to/python3.12 demo.  Other environment: make VENV=/path demo.

VENV   ?= .venv
PYTHON ?= $(shell for p in python3.11 python3 python3.12 python3.13 python3.14; do \
	if "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	echo "$$p"; break; fi; done)
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: help demo test slow faults fuzz drift notebooks docs browser lint types format bench clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# \{0,1\}//p' $(firstword $(MAKEFILE_LIST)); \
	echo "Targets: demo test slow faults fuzz drift notebooks docs browser lint types format bench clean"

demo: $(VENV)/.has-plot
	@$(BIN)/python examples/demo.py

test: $(VENV)/.has-dev
	$(BIN)/python -m pytest -q -n 2 --dist loadfile $(ARGS)

slow: $(VENV)/.has-dev
	$(BIN)/python -m pytest -q -m slow $(ARGS)

# docs/reliability.md has their tables.
faults: $(VENV)/.has-dev
	$(BIN)/python -m tests.faults $(ARGS)

fuzz: $(VENV)/.has-dev
	$(BIN)/python -m tests.fuzz $(ARGS)

# The captured table of numbers, in every environment that can be made here: BLAS kernels, locales,
# releases of numpy, the newest Python.
drift: $(VENV)/.has-dev
	$(BIN)/python -m tests.drift matrix $(ARGS)

# Every notebook from a clean kernel; the executed copies are what the documentation shows.
notebooks: $(VENV)/.has-dev
	$(BIN)/python -m pytest -q -n 2 -m notebook tests/docs $(ARGS)
	@touch build/notebooks/.executed

build/notebooks/.executed: $(wildcard examples/*.ipynb) | $(VENV)/.has-dev
	@$(MAKE) --no-print-directory notebooks ARGS=

docs: $(VENV)/.has-dev build/notebooks/.executed
	rm -rf build/docs
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --fresh-env \
	--doctree-dir build/doctrees --builder html docs build/docs
	@echo "the documentation is in build/docs/index.html"

browser: $(VENV)/.has-dev
	$(BIN)/python -m pytest -q -m browser $(ARGS)

lint: $(VENV)/.has-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.has-dev
	$(BIN)/mypy

format: $(VENV)/.has-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.has-bench
	$(BIN)/python -m benchmarks $(ARGS)

# Build products only. `rm -r .venv` takes the environment away too.
clean:
	rm -rf build docs/notebooks dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find croma_dask tests examples benchmarks stores -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp a set of dependencies: nothing is installed again until pyproject.toml changes.
$(VENV)/.created:
	@test -n "$(PYTHON)" || { \
	echo "croma-dask needs Python 3.11 or newer, and found none among python3.11, python3," >&2; \
	echo "python3.12, python3.13, python3.14. Install one, or say where it is: make PYTHON=/path/to/python" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	echo "croma-dask needs Python 3.11 or newer; $(PYTHON) is older or does not run." >&2; exit 1; }
	@echo "creating $(VENV) with $$("$(PYTHON)" --version)"
	@"$(PYTHON)" -m venv "$(VENV)" || { \
	echo "could not create $(VENV): on Debian and Ubuntu, install the package python3-venv" >&2; exit 1; }
	@touch $@

$(VENV)/.has-plot: pyproject.toml | $(VENV)/.created
	@echo "installing croma-dask into $(VENV) (about a minute, once)"
	@$(PIP) install --editable '.[plot]'
	@touch $@

$(VENV)/.has-dev: pyproject.toml | $(VENV)/.created
	@echo "installing croma-dask with its test and development tools into $(VENV) (once)"
	@$(PIP) install --editable '.[dev]'
	@touch $@ $(VENV)/.has-plot

$(VENV)/.has-bench: pyproject.toml | $(VENV)/.created
	@echo "installing croma-dask with the libraries it is measured against into $(VENV) (once)"
	@$(PIP) install --editable '.[bench]'
	@touch $@
