# make demo | test | test-all | lint | bench | clean     Needs Python 3.11 or newer, gcc, g++ and make.
#
# PYTHON=python3.11   the interpreter that .venv is made with
# TORCH=torch==2.13.0 what to install for torch; on Linux, pip's default build brings CUDA along.
#                     A CPU build: TORCH_INDEX=<address of the CPU wheel index of PyTorch>
# PIP_ARGS=...        more arguments for pip, such as --index-url or --find-links

PYTHON ?= $(firstword $(shell command -v python3.11 python3.12 python3.13 python3 2>/dev/null))
TORCH ?= torch==2.13.0
TORCH_INDEX ?=
PIP_ARGS ?=
WORKERS ?= 3
PYTEST_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
# Stamps: an empty file per finished step, so that repeated runs are quick.
DONE := $(VENV)/.done
INSTALLED := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS)
MLIR_ADVICE := as root: apt-get install -y mlir-19-tools llvm-19

.PHONY: demo test test-all lint format types imports bench clean help environment ascend mindspore cuda tilelang opencl toolchains

help:
	@sed -n 's/^# \{0,1\}//p;/^$$/q' Makefile

demo: environment ascend
	$(BIN)/sketchc demo

# Short tests at the end: until the last one is done, all workers have some.
test: $(DONE)/dev toolchains
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -rs \
	    tests/e2e tests/golden tests/unit $(PYTEST_ARGS)

# All cases of the sweeps, of which `test` takes a part (tests/sweeps.py).
test-all:
	SKETCHC_SWEEPS=all $(MAKE) test

lint: format imports types

# What the steps need --------------------------------------------------------------------------

environment: $(DONE)/package

$(DONE)/venv:
	@test -n "$(PYTHON)" || { echo "no Python: say make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "$(PYTHON) is older than 3.11: say make PYTHON=..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@mkdir -p $(DONE) && touch $@

# Before anything that depends on it, so that the build asked for here is the one that is used.
$(DONE)/torch: $(DONE)/venv
	$(PIP) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) "$(TORCH)"
	@touch $@

$(DONE)/package: pyproject.toml $(DONE)/torch
	$(PIP) --editable ".[torch,cpp,llm]"
	@# A CUDA build of torch brings the Triton that fits it.
	$(BIN)/python -c 'import triton' 2>/dev/null || $(PIP) --editable ".[triton]"
	@# Byte code ahead of the first run, also where the environment asks Python to write none.
	$(BIN)/python -m compileall -q sketchc grammar lowering runtime agents docspec
	@touch $@

# What the extra `dev` names, by itself: the package stays as it is, for what uses it meanwhile.
$(DONE)/dev: pyproject.toml $(DONE)/package
	@$(BIN)/python -c 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	    print(*project["optional-dependencies"]["dev"], sep="\n")' > $(DONE)/dev.txt
	$(PIP) --requirement $(DONE)/dev.txt
	@touch $@

# The front end of triton-ascend, in an environment of its own in the user's data folder. Only where
# its output can be executed; no step depends on its success.
ascend: environment
	@if $(BIN)/python -m sketchc.runtime.toolchains.triton_ascend.environment; then \
	    $(BIN)/sketchc toolchain install triton_ascend || true; \
	else \
	    echo "triton_ascend will not be executed. $(MLIR_ADVICE); then make again"; \
	fi

# What the tests need besides. MindSpore is large: only continuous integration installs it for them,
# others by `make mindspore`; likewise nvcc, where there is none, and TileLang, by `make tilelang`, and
# PoCL.
toolchains: ascend $(if $(filter 1,$(SKETCHC_REQUIRE_TOOLCHAINS)),mindspore tilelang opencl)

# For MindSpore tasks, in an environment of its own: 0.8 GB to download, 0.9 GB on the disk.
mindspore: environment
	@$(BIN)/sketchc toolchain install mindspore

# For CUDA-C, in an environment of its own: 0.1 GB to download, 0.3 GB on the disk.
cuda: environment
	@$(BIN)/sketchc toolchain install cuda_c

# For OpenCL on the CPU, in an environment of its own: 0.1 GB to download, 0.3 GB on the disk.
opencl: environment
	@$(BIN)/sketchc toolchain install opencl

# TileLang, beside sketchc: 0.1 GB to download, 0.3 GB on the disk; and nvcc, which it calls.
# In continuous integration after the linters' own packages: two pips at once in one environment get
# in each other's way.
tilelang: environment cuda $(if $(filter 1,$(SKETCHC_REQUIRE_TOOLCHAINS)),$(DONE)/dev)
	@$(BIN)/sketchc toolchain install tilelang_cuda

# Checks ---------------------------------------------------------------------------------------

format: $(DONE)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Types and imports are checked on the package as users install it, where every part has the name
# that it is imported by. Old build folders would leak deleted files into it.
$(INSTALLED): $(DONE)/dev FORCE
	@rm -rf build $(INSTALLED)
	@$(PIP) --no-deps --target $(INSTALLED) .
	@rm -rf build

imports: $(INSTALLED)
	cd $(INSTALLED) && PYTHONPATH=. ../bin/lint-imports --no-cache --config ../../pyproject.toml

types: $(INSTALLED)
	MYPYPATH=$(INSTALLED) $(BIN)/mypy --strict --package sketchc

.PHONY: FORCE
FORCE:

bench: environment
	$(BIN)/python benchmarks/run.py

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
