# What each target does stands in CONTRIBUTING.md; `make demo` and `make test` are all that a user needs.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check --no-input -qq
# The first interpreter that is new enough; `make PYTHON=/path/to/python3.12 ...` chooses another.
PYTHON ?= $(firstword $(foreach p,python3 python3.13 python3.12 python3.11,$(shell \
	$(p) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(p))))
DEMO_ARGS ?=
PYTEST_ARGS ?=
# Half of the tests wait for processes: a few more workers than processors. Each of them collects all tests once.
WORKERS ?= $(shell echo $$(( $$(nproc) + 2 )))
# Where the environment forbids bytecode, every process would compile the whole package anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help
help:
	@echo "make demo         a simulated 8-GPU node: preflight, engine, open gate, faults (DEMO_ARGS='--seconds 20')"
	@echo "make test         lint, types and every test that needs no root, GPU, browser or real vLLM"
	@echo "make venv         only the installation: package with the dev and provision extras"
	@echo "make test-root    network namespaces and hosts with systemd; needs root"
	@echo "make test-engine  a real vLLM on the CPU (minutes)"
	@echo "make test-web     the status page in headless Chromium"
	@echo "make bench        ratios against something measured in the same run"
	@echo "make lint fmt     check and format; make requirements: new pins; make clean: remove what was built"

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "nodegate needs Python 3.11 or newer: install python3 and python3-venv," \
	  "or name one with 'make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)'" >&2; exit 3; }
	@echo "making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "cannot make $(VENV): install the venv module" \
	  "(Debian, Ubuntu: apt-get install python3-venv) and run make again" >&2; exit 3; }

# One stamp for each set of packages: the demo installs only what a node needs.
$(VENV)/.base: requirements/base.txt pyproject.toml | $(BIN)/python
	@echo "installing nodegate"
	@$(PIP) install --require-hashes -r requirements/base.txt
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.base
	@echo "installing the dev extra"
	@$(PIP) install --require-hashes -r requirements/dev.txt
	@touch $@

$(VENV)/.provision: requirements/provision.txt $(VENV)/.base
	@echo "installing the provision extra (ansible-core, ansible-runner)"
	@$(PIP) install --require-hashes -r requirements/provision.txt
	@touch $@

.PHONY: venv
venv: $(VENV)/.dev $(VENV)/.provision

.PHONY: demo
demo: $(VENV)/.base
	@$(BIN)/nodegate demo $(DEMO_ARGS)

.PHONY: lint
lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.PHONY: fmt
fmt: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: test
test: lint
	@bash .ci/need gcc:gcc gcc:libc6-dev openssl:openssl
	$(BIN)/pytest -n $(WORKERS) --dist loadfile -m 'not root and not engine and not web' $(PYTEST_ARGS)

.PHONY: test-root
test-root: $(VENV)/.dev
	@test "$$(id -u)" = 0 || { echo "make test-root needs root: run it with sudo" >&2; exit 3; }
	@bash .ci/need ip:iproute2 gcc:gcc gcc:libc6-dev nft:nftables mmdebstrap:mmdebstrap openssl:openssl \
	  systemd-nspawn:systemd-container ssh:openssh-client haproxy:haproxy nginx:nginx-light promtool:prometheus \
	  amtool:prometheus-alertmanager
	$(BIN)/pytest -n 2 --dist loadfile -m root $(PYTEST_ARGS)

.PHONY: test-engine
test-engine: $(VENV)/.dev
	bash tests/engine/install_vllm.sh
	$(BIN)/pytest -m engine $(PYTEST_ARGS)

.PHONY: test-web
test-web: $(VENV)/.dev
	@bash .ci/need chromium:chromium
	$(BIN)/pytest -m web $(PYTEST_ARGS)

.PHONY: bench
bench: $(VENV)/.dev
	@bash .ci/need gcc:gcc gcc:libc6-dev prometheus-node-exporter:prometheus-node-exporter ip:iproute2 \
	  openssl:openssl ssh:openssh-client mmdebstrap:mmdebstrap systemd-nspawn:systemd-container
	$(BIN)/python tests/bench/run_bench.py

# The machine's own extra indexes and constraints are kept out: the pins and hashes must be everyone's.
COMPILE := env -u PIP_FIND_LINKS -u PIP_EXTRA_INDEX_URL -u PIP_CONSTRAINT PIP_CONFIG_FILE=/dev/null \
	CUSTOM_COMPILE_COMMAND='make requirements' $(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe \
	--strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --build-deps-for=editable

.PHONY: requirements
requirements: $(VENV)/.dev
	$(COMPILE) --upgrade -o requirements/base.txt pyproject.toml
	$(COMPILE) --upgrade --extra dev -c requirements/base.txt -o requirements/dev.txt pyproject.toml
	$(COMPILE) --upgrade --extra provision -c requirements/dev.txt -o requirements/provision.txt pyproject.toml

.PHONY: clean
clean:
	rm -rf $(VENV) .venv-engine build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis \
	  bench-results web-results tests/nvml/build
	find agent tests -name __pycache__ -type d -prune -exec rm -rf {} +
