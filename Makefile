# Two commands do everything on a fresh machine with Python 3.11 or later: `make demo` and `make test`.

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
READY := .venv/.ready
NOW := 2026-11-20T12:00:00Z
SHARED ?= ../shared
PYTEST_FLAGS ?= -n 2 --dist loadgroup

# What the judges of $(SHARED) must at least find. A change may raise these figures, never lower them.
CONFORMANCE_MIN := 260
SCENARIOS_STAGE := core

.PHONY: system-packages demo test micro lint judge judge-conformance judge-scenarios judge-admission judge-grouping control-plane demo-cluster docs lock clean

demo: $(READY)  ## decide on the sample snapshot
	$(BIN)/kai-cp solve examples/demo-cluster.json --now $(NOW)

test: $(READY)  ## all tests
	$(BIN)/pytest $(PYTEST_FLAGS)

micro: $(READY)  ## every micro benchmark once, small; without --benchmark-disable they are measured
	$(BIN)/pytest benchmarks --benchmark-disable

lint: $(READY)  ## style, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

judge: judge-conformance judge-scenarios judge-admission judge-grouping  ## the recorded KAI cases and the users' scenarios

judge-conformance: $(READY)
	$(BIN)/python $(SHARED)/conformance/judge.py $(SHARED)/conformance/cases --min-pass $(CONFORMANCE_MIN) \
		--command '$(BIN)/kai-cp solve {inputs} --output-dir {outputs} --now {now}'

judge-scenarios: $(READY)
	$(BIN)/python $(SHARED)/scenarios/judge_scenarios.py --cases $(SHARED)/scenarios/cases --quiet \
		--stage $(SCENARIOS_STAGE) --command '$(BIN)/kai-cp solve {inputs} --output-dir {outputs} --now {now}'

judge-admission: $(READY)
	$(BIN)/python $(SHARED)/admission/judge_admission.py $(SHARED)/admission/cases --command '$(BIN)/kai-cp admit {inputs} {outputs}'

judge-grouping: $(READY)
	$(BIN)/python $(SHARED)/grouping/judge_grouping.py $(SHARED)/grouping/cases --command '$(BIN)/kai-cp group {inputs} {outputs}'

system-packages:  ## Debian's Prometheus and Chromium, for the tests that need them (as root)
	@for command in prometheus chromium chromedriver; do command -v $$command > /dev/null || missing=yes; done; \
	if [ -n "$$missing" ]; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
			prometheus chromium chromium-driver fonts-dejavu-core > /dev/null; \
	fi

control-plane: $(READY)  ## the API server and the Helm that the tests run against (built once, then cached)
	$(BIN)/python -m tests.kubetest.build
	$(BIN)/python -m tests.kubetest.build helm

demo-cluster: $(READY)  ## a real control plane with fake GPU nodes, our processes and a sample workload
	$(BIN)/python -m kai_cp.kube.demo

docs: $(READY)  ## the generated pages and the sample snapshot
	$(BIN)/kai-cp config explain --format markdown > docs/settings.md
	$(BIN)/python examples/make_demo_cluster.py
	$(BIN)/python deploy/make_chart.py

lock:  ## resolve the dependencies anew (needs uv)
	uv pip compile pyproject.toml --group dev --generate-hashes --no-header --no-emit-index-url \
		--python-version 3.11 --output-file requirements.lock

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .benchmarks

$(READY): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or later with venv is needed; name it with PYTHON=..." >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@
