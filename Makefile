# Two commands do everything on a fresh machine with Python 3.11 or later: `make demo` and `make test`.
# `make help`, or make alone, lists the rest.

.DEFAULT_GOAL := help

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
SHELL := bash
READY := .venv/.ready
LIGHT := .venv/.light
NOW := 2026-11-20T12:00:00Z
SHARED ?= ../shared
# A process of tests that dies ends them all: with groups, another would wait for ever for tests of the first.
PYTEST_FLAGS ?= -n 2 --dist loadgroup --max-worker-restart 0 --durations 30
# Tests of tiny worlds and of texts: most of the rules, none of the processes, searches and servers.
QUICK := $(addprefix tests/,kai_cp_topology rules docs/test_words.py docs/test_lists.py conventions/test_names.py conventions/test_mirror.py \
	$(addprefix kai_cp_models/,rules fairness test_units.py test_ledger.py) \
	$(addprefix kai_cp/,reader test_decisions.py test_settings.py test_report.py))

# What the judges of $(SHARED) must at least find. A change may raise these figures, never lower them.
CONFORMANCE_MIN := 260
SCENARIOS_STAGE := core

.PHONY: help release system-packages demo check test micro lint judge judge-conformance judge-scenarios judge-faults judge-admission judge-grouping judge-time-axis judge-explain control-plane demo-cluster docs lock clean

help:  ## what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(LIGHT)  ## decide on a sample cluster (installs 0.2 GB at first)
	$(BIN)/kai-cp solve examples/demo-cluster.json --now $(NOW)

check: lint  ## in two minutes: lint, and the tests of tiny worlds
	$(BIN)/pytest $(PYTEST_FLAGS) $(QUICK)

test: $(READY)  ## all tests
	$(BIN)/pytest $(PYTEST_FLAGS)

# Without --benchmark-disable they are measured.
micro: $(READY)  ## every micro benchmark once, small
	$(BIN)/pytest benchmarks --benchmark-disable

lint: $(READY)  ## style, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

judge: judge-conformance judge-scenarios judge-faults judge-admission judge-grouping judge-time-axis judge-explain  ## the recorded KAI cases and the users' scenarios

judge-conformance: $(READY)
	$(BIN)/python $(SHARED)/conformance/judge.py $(SHARED)/conformance/cases --min-pass $(CONFORMANCE_MIN) \
		--command '$(BIN)/kai-cp solve {inputs} --output-dir {outputs} --now {now}'

judge-scenarios: $(READY)
	$(BIN)/python $(SHARED)/scenarios/judge_scenarios.py --cases $(SHARED)/scenarios/cases --quiet \
		--stage $(SCENARIOS_STAGE) --command '$(BIN)/kai-cp solve {inputs} --output-dir {outputs} --now {now}'

judge-faults: $(READY)  ## clusters that were once decided wrongly
	$(BIN)/python $(SHARED)/faults/judge_faults.py --cases $(SHARED)/faults/cases --quiet \
		--command '$(BIN)/kai-cp solve {inputs} --output-dir {outputs} {options}'

judge-admission: $(READY)
	$(BIN)/python $(SHARED)/admission/judge_admission.py $(SHARED)/admission/cases --command '$(BIN)/kai-cp admit {inputs} {outputs}'

judge-grouping: $(READY)
	$(BIN)/python $(SHARED)/grouping/judge_grouping.py $(SHARED)/grouping/cases --command '$(BIN)/kai-cp group {inputs} {outputs}'

judge-explain: $(READY)
	$(BIN)/python $(SHARED)/explain/judge_explain.py --cases $(SHARED)/explain/cases --quiet \
		--explain '$(BIN)/kai-cp explain {snapshot} {target} --now {now} --format json' \
		--what-if '$(BIN)/kai-cp what-if {snapshot} {args} --now {now} --format json' \
		--solve '$(BIN)/kai-cp solve {inputs} --output-dir {outputs} --now {now} --budget 10 --patience 20 > /dev/null'

judge-time-axis: $(READY)
	$(BIN)/python $(SHARED)/time-axis/judge_time_axis.py --cases $(SHARED)/time-axis/cases --quiet \
		--command '$(BIN)/kai-cp solve {inputs} --output-dir {outputs} --now {now} --config {config}' \
		--defrag '$(BIN)/kai-cp defrag {input} {question} --now {now} --config {config} --output {output}'

# Prometheus, Chromium with its driver, PostgreSQL.
system-packages:  ## Debian's packages for some tests (as root)
	@for command in prometheus chromium chromedriver; do command -v $$command > /dev/null || missing=yes; done; \
	ls /usr/lib/postgresql/*/bin/initdb > /dev/null 2>&1 || missing=yes; \
	if [ -n "$$missing" ]; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
			prometheus chromium chromium-driver postgresql fonts-dejavu-core > /dev/null; \
	fi

control-plane: $(READY)  ## the API server and Helm of the tests (built once)
	$(BIN)/python -m tests.kubetest.build
	$(BIN)/python -m tests.kubetest.build helm

demo-cluster: $(READY)  ## a real control plane with fake GPU nodes
	$(BIN)/python -m kai_cp.kube.demo

docs: $(READY)  ## the generated pages and the sample snapshot
	$(BIN)/kai-cp config explain --format markdown > docs/settings.md
	$(BIN)/kai-cp schema --format markdown > docs/reference-json.md
	$(BIN)/python -c 'from kai_cp.report.reference import commands_page; print(commands_page(), end="")' > docs/reference-cli.md
	$(BIN)/python examples/make_demo_cluster.py
	$(BIN)/python deploy/make_chart.py

UV := uv pip compile pyproject.toml --quiet --generate-hashes --no-header --no-emit-index-url --python-version 3.11

lock:  ## resolve the dependencies anew (needs uv)
	$(UV) --all-extras --group dev --output-file requirements.lock
	$(UV) --group build --constraints requirements.lock --output-file requirements-light.lock
	$(UV) --extra cluster --group build --constraints requirements.lock --output-file requirements-cluster.lock

release: $(READY)  ## wheel, source archive, SBOM, checksums into dist/
	scripts/release

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .benchmarks

define VENV
@test -n "$(PYTHON)" || { echo "Python 3.11 or later with venv is needed; name it with PYTHON=..." >&2; exit 1; }
@test -x $(BIN)/python || { echo "[1/3] making .venv with $(PYTHON)"; $(PYTHON) -m venv .venv; }
endef
PIP := $(BIN)/python -m pip --disable-pip-version-check

# What solve, check and inspect need; a step says what it does, as fetching takes a minute or two.
# Bytecode is made for what is really used, when it is first used: a third of the disk and of the time.
$(LIGHT): requirements-light.lock pyproject.toml
	$(VENV)
	@echo "[2/3] installing $$(grep -c == requirements-light.lock) packages into .venv (70 MB to fetch, 0.2 GB on disk)"
	@set -o pipefail; $(PIP) install --no-compile --require-hashes -r requirements-light.lock \
		| awk '/^Collecting/ {printf "      %s\n", $$2; fflush()}'
	@echo "[3/3] installing kai-cp from this directory"
	@$(PIP) --quiet install --no-deps --no-build-isolation -e .
	@touch $@

# Everything, the developers' tools among it.
$(READY): requirements.lock pyproject.toml
	$(VENV)
	@echo "installing everything, the developers' tools too, into .venv ($$(grep -c == requirements.lock) packages in all)"
	@$(PIP) --quiet install --require-hashes -r requirements.lock
	@$(PIP) --quiet install --no-deps --no-build-isolation -e .
	@touch $(LIGHT) $@
