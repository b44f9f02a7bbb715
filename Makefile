# Everything a contributor runs. The environment is made once, from pinned versions, in .venv.

WORKERS ?= 2
BIN := .venv/bin
STAMP := .venv/.installed

# One thread per test worker: the workers share the cores.
export OMP_NUM_THREADS ?= 1
export MKL_NUM_THREADS ?= 1
# Pyright is pinned; it need not look for a newer one.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.DEFAULT_GOAL := help
.PHONY: help demo test lint clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-6s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(STAMP) ## run every experiment, small; its last line is the path of the report
	$(BIN)/python -m experiments all --quick

test: $(STAMP) ## run all tests, warnings as errors
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --durations 10

lint: $(STAMP) ## check style, types and who imports whom
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/lint-imports

clean: ## remove caches, builds, quick runs and reports; .venv and runs at paper scale stay
	rm -rf build dist demo runs/quick runs/report.html .pytest_cache .hypothesis .ruff_cache .import_linter_cache
	find src tests examples benchmarks experiments -type d -name __pycache__ -prune -exec rm -rf {} +

# The variables hold for the isolated build of the package itself as well (the second one from pip 25.3 on).
$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
		$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

$(BIN)/python:
	@for python in python3.11 python3; do \
		if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
			echo "$$python -m venv .venv"; \
			$$python -m venv .venv && exit 0; \
			rm -rf .venv; \
			echo "error: $$python -m venv failed, see above (on Debian: apt install python3-venv)" >&2; \
			exit 1; \
		fi; \
	done; \
	echo "error: Python 3.11 or newer is needed, as python3.11 or python3; found: $$(python3 --version 2>&1)" >&2; \
	exit 1
