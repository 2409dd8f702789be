# Needs make and Python 3.11 or newer. The first call installs everything into .venv (some minutes); later calls reuse it.

PYTHON ?= $(shell for python in python3.11 python3 python3.12 python3.13 python3.14; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$python; break; }; done)
INSTALLED := .venv/installed

DEMO := --models gmlp,vit,transformer --seq 17,65,257 --params 300k --depth 2 --rounds 15 --task digits \
	--metrics params,flops,latency,memory,accuracy --accuracy-seq 17 --seeds 3

PYTEST := .venv/bin/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder
# the tests start Python dozens of times: what is compiled is kept, whatever the shell says
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help install demo replicate test test-slow test-all lint bench docs

help:
	@echo "make install   install into .venv, which the others do by themselves"
	@echo "make demo      measure gMLP, ViT and Transformer side by side and write a report (3 to 4 minutes)"
	@echo "make replicate measure the README's headline ratios on this machine, for bench pool (5 to 10 minutes on one thread)"
	@echo "make test      the everyday tests (2 to 5 minutes)"
	@echo "make test-slow what they leave out: whole runs that are killed, stopped and gone on with, Ray, the browser, compilers, large models"
	@echo "make test-all  both"
	@echo "make lint      style, types and import layers"
	@echo "make docs      fill the marked places of README and docs from results/, draw README's picture, and write docs/command-line.md"
	@echo "make bench     time the hot paths, hold them to their limits (docs/benchmarks.md) and compare them with the last time"

install: $(INSTALLED)

demo: $(INSTALLED)
	.venv/bin/bench run $(DEMO)

replicate: $(INSTALLED)
	.venv/bin/bench ablate headline --threads 1

test: $(INSTALLED)
	$(PYTEST) -m "not slow"

test-slow: $(INSTALLED)
	$(PYTEST) -m slow

test-all: test test-slow

.NOTPARALLEL:

lint: $(INSTALLED)
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports

docs: $(INSTALLED)
	.venv/bin/python -m tests.docs.command_line > docs/command-line.md.new && mv docs/command-line.md.new docs/command-line.md
	.venv/bin/python -m tests.docs.fill
	.venv/bin/python -m tests.docs.hero

bench: $(INSTALLED)
	.venv/bin/python -m pytest tests/benchmarks --benchmark-enable --benchmark-only --benchmark-autosave \
		$$(ls .benchmarks/*/*.json > /dev/null 2>&1 && echo --benchmark-compare) --benchmark-columns=median,iqr,rounds

$(INSTALLED): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer was not found; name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "installing into .venv, once; torch alone takes some minutes"
	@.venv/bin/python -c '' 2>/dev/null || $(PYTHON) -m venv --clear .venv
	.venv/bin/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[test,lint]'
	@touch $@
