# make demo   the main job on this machine: no GPU, cluster or root needed
# make test   everything: unit, differential, minikubelet, real cluster; installs what it needs, reuses what is built
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo check lint unit packages compilers test cluster-up cluster-down proto lock bench clean

$(VENV)/.installed: requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "make: $(PYTHON) is missing or older than Python 3.11; name another one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

demo: $(VENV)/.installed
	@$(BIN)/dra-driver demo

check: lint unit

lint: $(VENV)/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: $(VENV)/.installed
	$(BIN)/pytest -q -n 2 --dist loadgroup -m "not integration"

# Debian packages for the integration tests; nothing is installed when all are there.
APT := runc busybox-static containernetworking-plugins debootstrap buildah podman
packages:
	@missing=""; for p in $(APT); do dpkg -s $$p >/dev/null 2>&1 || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ] && { [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; }; then \
	  echo "make: the integration tests need root, and on Debian: apt-get install$$missing" >&2; exit 1; fi; \
	if [ -n "$$missing" ]; then apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; fi

# The tests compile Kubernetes and NVIDIA's toolkit (Go) and a stand-in for NVML (C).
compilers:
	@for c in go cc; do command -v $$c >/dev/null || { echo "make: $$c is not on PATH; needed are Go 1.26 and a C compiler" >&2; exit 1; }; done

test: packages compilers lint
	$(BIN)/pytest -q -n 2 --dist loadgroup -m "not integration"
	$(BIN)/python -m tests.cluster build
	$(BIN)/pytest -q -n 2 --dist loadgroup -m integration --durations 15

cluster-up: packages compilers $(VENV)/.installed
	$(BIN)/python -m tests.cluster up

cluster-down: $(VENV)/.installed
	$(BIN)/python -m tests.cluster down

proto: $(VENV)/.installed
	$(BIN)/python proto/generate.py

# Needs `pip install uv`; index addresses are never written.
lock:
	uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -q -o requirements.lock
	uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -q -o requirements-dev.lock

bench: $(VENV)/.installed
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
