# Every target runs on a fresh machine with Python, pip and make.
.DEFAULT_GOAL := help
.PHONY: help setup format lint types test test-lowest test-latest test-deepagents coverage bench bench-smoke ci setup-local-model test-local-model

RUN := uv run

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup:  ## install uv and the environment
	pip install --quiet uv && uv sync

format:  ## rewrite the code in its one form
	$(RUN) ruff format . && $(RUN) ruff check --fix .

lint:  ## style, and the layers of the architecture
	$(RUN) ruff format --check . && $(RUN) ruff check . && $(RUN) lint-imports

types:  ## the strict type checker
	$(RUN) mypy

test:  ## all tests
	$(RUN) pytest

test-lowest:  ## the tests with the oldest supported versions of LangChain, LangGraph and the rest
	UV_PROJECT_ENVIRONMENT=.venv-lowest $(RUN) --resolution lowest-direct pytest -n auto tests/canaries tests/langchain tests/langgraph tests/session
	rm -f uv.lock

test-latest:  ## the same with the newest
	UV_PROJECT_ENVIRONMENT=.venv-latest $(RUN) --upgrade pytest -n auto tests/canaries tests/langchain tests/langgraph tests/session

test-deepagents:  ## sub-agents of deepagents, which needs older versions than the rest: beside the environment
	$(RUN) --with deepagents pytest -q tests/langgraph/test_sub_agents_of_deepagents.py

setup-local-model:  ## install the small real model of the optional suite (180 MB, needs Node.js 20)
	$(RUN) python -m bound_middleware.testing.local_model_setup

test-local-model: setup-local-model  ## the optional suite against a small real model
	$(RUN) pytest tests/local_model

coverage:  ## branch coverage of the core, which must be whole
	$(RUN) coverage run -m pytest -q tests/core tests/laws tests/schedules tests/session/test_scope_redaction.py tests/decision/test_collectors_process.py && $(RUN) coverage report --fail-under=100

bench:  ## the benchmarks, in full
	for b in benchmarks/*.py; do $(RUN) python $$b; done

bench-smoke:  ## the benchmarks, as a quick check that they run
	for b in benchmarks/*.py; do $(RUN) python $$b --smoke || exit 1; done

ci: test-deepagents bench-smoke  ## everything that the gate runs; tests, lint, types and coverage are in bound.yml
	$(RUN) bound demo --fast
	$(RUN) bound gate ci
