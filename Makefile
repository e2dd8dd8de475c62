# The verbs of the project; CI has no command of its own.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CONFORMANCE := tests/conformance/cases.jsonl.gz
LOCK = $(BIN)/uv pip compile --quiet --upgrade --python-version 3.11 --python-platform linux --generate-hashes --no-header --no-annotate

.PHONY: help run test tools check format conformance bench e2e lock lowest freeze-api clean
.DEFAULT_GOAL := help

help: ## show this
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

run: $(STAMP) ## serve on an embedded cluster: no Kubernetes needed
	$(BIN)/scheduler-extender serve --cluster examples/cluster.yaml --set log.format=text --set server.host=127.0.0.1 --set management.host=127.0.0.1

test: $(STAMP) ## run every test
	$(BIN)/python -m pytest

tools: ## fetch helm and promtool, without which a few tests are skipped
	sh tests/tools.sh

check: $(STAMP) ## lint, check types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP) ## rewrite the source as the linter wants it
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

conformance: $(STAMP) ## compare every algorithm with kube-scheduler's own decisions
	$(BIN)/scheduler-extender conformance $(CONFORMANCE)

bench: $(STAMP) ## measure; prints ratios within one run
	$(BIN)/python -m benchmarks

e2e: $(STAMP) ## try it with a real control plane: KUBE_ASSETS names a folder with etcd, kube-apiserver, kube-scheduler
	$(BIN)/python -m pytest -m e2e tests/e2e

lock: $(STAMP) ## renew the versions and hashes that the image is built with, and those that it installs
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' | $(LOCK) --output-file requirements-build.lock -
	$(LOCK) --extra otel --output-file requirements.lock pyproject.toml

lowest: $(STAMP) ## run the tests with the lowest versions that pyproject.toml allows
	$(BIN)/uv venv --quiet --allow-existing --seed --python $(BIN)/python .lowest
	$(BIN)/uv pip compile --quiet --resolution lowest-direct --extra otel --no-header --no-annotate --output-file .lowest/floors.txt pyproject.toml
	$(BIN)/uv pip install --quiet --python .lowest/bin/python --constraint .lowest/floors.txt --editable '.[dev]'
	.lowest/bin/python -m pytest

freeze-api: $(STAMP) ## renew what is promised to authors of plug-ins, and the reference in their guide
	PYTHONPATH=. $(BIN)/python tests/author_api.py

clean: ## remove what the other verbs made
	rm -rf $(VENV) .lowest .tools .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist build
