# make up      starts everything on this machine            make lint    ruff and mypy
# make test    runs every test, then the linters            make bench   measures speed and size
# make unit    runs the tests that need no server
# make lock    renews the locked versions (needs uv)        make clean   removes the virtual environment
# Needs Python >= 3.11 (PYTHON=... chooses one), pip and make. ARGS=... is passed on: make up ARGS="--demo --port 7000".

VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
unexport PYTHONDONTWRITEBYTECODE  # where it is set: tests start hundreds of processes, which read bytecode faster
IS_NEW_ENOUGH := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python3.14; do \
	$$python -c '$(IS_NEW_ENOUGH)' 2>/dev/null && echo $$python && break; done)
OPENID := tests/support/openid_provider
NODE_MODULES := $(OPENID)/node_modules/.package-lock.json
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
COMPILE := uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	--no-emit-index-url --quiet --extra service --extra katib --group build

.PHONY: up test unit lint bench lock clean

up: $(VENV)/service
	@exec $(BIN)/tbservice up $(ARGS)

# The linters come last, so that a matter of style never hides what the tests say. Three processes, even on two cores:
# a third of the time tests wait, for processes that start and end. Each takes 1 GB with its servers.
test: $(VENV)/test $(NODE_MODULES)
	$(BIN)/pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder $(ARGS)
	@$(MAKE) --no-print-directory lint

unit: $(VENV)/test
	$(BIN)/pytest --numprocesses logical --dist worksteal --quiet tests/unit $(ARGS)

lint: $(VENV)/test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: $(VENV)/bench
	$(BIN)/python tests/benchmarks $(ARGS)

# Three locks: whoever runs the service does not install a browser driver and type checkers. Each repeats the one before.
lock:
	$(COMPILE) --output-file requirements.lock
	$(COMPILE) --group test --group bench --constraints requirements.lock --output-file requirements-test.lock
	$(COMPILE) --group test --group bench --group rivals --constraints requirements-test.lock \
		--output-file requirements-bench.lock

clean:
	rm -rf $(VENV) $(OPENID)/node_modules

# Each environment is a file whose age tells whether its lock has changed since. Every package is checked by its hash.
$(VENV)/service: requirements.lock pyproject.toml | $(BIN)/python
	@echo "installing tbhub into $(VENV) (a few hundred MB, once)"
	@$(PIP) install --require-hashes --requirement requirements.lock
	@$(PIP) install --no-deps --no-build-isolation --no-index --editable .
	@touch $@

$(VENV)/test: requirements-test.lock $(VENV)/service
	@echo "installing the tests' tools into $(VENV)"
	@$(PIP) install --require-hashes --requirement requirements-test.lock
	@touch $@

# The OpenID provider that sign-in is tested with; npm checks each package by its hash.
$(NODE_MODULES): $(OPENID)/package-lock.json
	@command -v npm >/dev/null || { echo "the tests need Node.js 20 or newer with npm: install it \
	(Debian: apt-get install nodejs npm)" >&2; exit 1; }
	@npm ci --prefix $(OPENID) --no-audit --no-fund --silent
	@touch $@

$(VENV)/bench: requirements-bench.lock $(VENV)/test
	@echo "installing what the benchmarks compare with into $(VENV)"
	@$(PIP) install --require-hashes --requirement requirements-bench.lock
	@touch $@

$(BIN)/python:
	@$(if $(PYTHON),,echo "tbhub needs Python 3.11 or newer with its venv module; none was found: \
	install it (Debian: apt-get install python3-venv), or name one: make PYTHON=/path/to/python3" >&2; exit 1)
	@$(PYTHON) -m venv $(VENV)
