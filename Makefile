# make help says what there is. Needs Python 3.11 to 3.13; everything else is installed into .venv from requirements.lock.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# The demo and the tests start hundreds of processes: without bytecode each compiles the whole package anew.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Stands for the native codec. It is not made where nothing can compile, so that each call says so and tries again.
SPEEDUPS := $(VENV)/.speedups
# Processes that run tests, one more than cores up to 4: a third of the time a test waits for a server or a process.
# Each has its own servers. The tests of a file share what is dear to make, hence a file is given to one process; which
# files come first is decided by tests/conftest.py, not by their number of tests.
JOBS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 4 ? n + 1 : 4)))
PYTEST = $(BIN)/pytest --numprocesses=$(JOBS) --dist=loadfile --no-loadscope-reorder

# The tests that read documents, once more. They are chosen in tests/conftest.py (BOTH_CODECS), from this folder: to collect all
# tests takes ten seconds of each process.
WITH_PYTHON_CODEC = @if [ -e $(SPEEDUPS) ]; then \
	echo "make: the tests that read documents, once more with the Python codec" >&2; \
	MIGRATOR_CODEC=python $(PYTEST) -m codec tests/integration; \
	else echo "make: the tests ran with the Python codec alone, because the native codec is not built here" >&2; fi

# The demo and the tests start servers from wheels (extra embedded).
SERVERS = @case "$$(uname -sm)" in \
	"Linux x86_64") ;; \
	*) echo "make: $@ starts servers that exist for Linux on x86-64 only, this is $$(uname -sm);" \
		"lint, types, imports and the command $(BIN)/migrator work here" >&2; exit 2 ;; \
	esac

.PHONY: help demo sample test test-deep planted lint format types imports check lock speedups-wheel speedups-asan clean

help: ## say what there is
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

demo: $(SPEEDUPS) ## move a whole scheduler between two real servers and leave a report
	$(SERVERS)
	@echo "make: the demo starts MongoDB and PostgreSQL, copies 20,000 documents and verifies them: about a minute; ARGS=-v for details" >&2
	@status=0; $(BIN)/migrator demo $(ARGS) || status=$$?; \
	case $$status in \
	0) ;; \
	8) echo "make: documents are in quarantine, as planned: the demo plants some that cannot be converted" >&2 ;; \
	*) exit $$status ;; \
	esac

sample: $(SPEEDUPS) ## run the demo and keep its report as reports/sample
	$(SERVERS)
	$(BIN)/python .ci/sample

test: $(SPEEDUPS) ## run all tests, on real servers; ARGS="tests/unit -x" for some, JOBS=1 one by one, ARGS="-m 'not server'" without servers
	$(SERVERS)
	$(PYTEST) --costs=build/costs-of-tests.txt $(ARGS)
	$(if $(strip $(ARGS)),,$(WITH_PYTHON_CODEC))

test-deep: $(SPEEDUPS) ## the same with more versions, cases and moments: hours
	$(SERVERS)
	MIGRATOR_TESTS=deep $(PYTEST) $(ARGS)

planted: $(SPEEDUPS) ## plant faults in a copy, one by one, and run the tests that must see each; ARGS=cutover for some
	$(SERVERS)
	$(BIN)/python .ci/planted $(ARGS)

lint: $(STAMP) ## look for faults of style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(STAMP) ## lay out the code
	$(BIN)/ruff format .

types: $(STAMP) ## check the types
	$(BIN)/mypy

imports: $(STAMP) ## check that dependencies point one way, and that each imported package is declared
	$(BIN)/lint-imports
	$(BIN)/deptry migrator alembic

check: lint types imports test ## all of the above but the demo

lock: $(STAMP) ## write requirements.lock anew; ARGS=--upgrade for newer versions
	$(BIN)/python .ci/lock $(ARGS)

speedups-wheel: $(STAMP) ## compile the native codec for this system and this Python, into dist/
	$(BIN)/python .ci/speedups dist

speedups-asan: $(STAMP) ## fuzz the native codec under AddressSanitizer; ARGS="--seconds 3600 --seed 2" for longer
	$(BIN)/python .ci/sanitize $(ARGS)

clean: ## remove what make and the tools have made
	rm -rf $(VENV) build dist speedups/build speedups/*.egg-info
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is written last: an installation that was interrupted is done again.
$(STAMP): requirements.lock pyproject.toml
	@python=; \
	for candidate in $(PYTHON) python3.13 python3.12 python3.11 python3; do \
		if "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; \
		then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
		echo "make: no Python 3.11, 3.12 or 3.13 with venv and ensurepip (on Debian: apt install python3-venv); name one with PYTHON=..." >&2; \
		exit 1; \
	fi; \
	if ! $(BIN)/python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then \
		echo "make: $(VENV) with $$("$$python" --version)" >&2; \
		"$$python" -m venv --clear $(VENV); \
	fi
	@echo "make: installing $$(grep -c '^[a-z0-9]' requirements.lock) packages of requirements.lock into $(VENV), once; it takes a minute or two" >&2
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(SPEEDUPS): $(STAMP) .ci/speedups $(wildcard speedups/*.toml speedups/*.py speedups/migrator_speedups/*.p*)
	@status=0; $(BIN)/python .ci/speedups || status=$$?; \
	case $$status in \
	0) touch $@ ;; \
	3) ;; \
	*) exit $$status ;; \
	esac
