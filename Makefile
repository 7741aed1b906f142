# Milepost. `make` lists the targets; every path is relative, so that a clone may lie in a folder with spaces.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

# The interpreter that the environments are made of; override with `make env PYTHON=/path/to/python3.12`.
PYTHON ?= $(shell scripts/find-python)
VENV := .venv
PY := $(VENV)/bin/python
# One seed per run, printed: repeat a run with `make test SEED=…`.
ifeq ($(origin SEED),undefined)
SEED := $(shell od -An -N3 -tu4 /dev/urandom | tr -d ' ')
endif
# Tests start hundreds of processes: each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
# What pytest gets, for example `make test ARGS="tests/unit -k fenced"`.
ARGS ?= tests
# How many processes share the tests. One has Airflow and mostly waits for it, one has Spark, the others have the rest.
WORKERS ?= 4
# Whose golden files `make wording` rewrites.
RING ?= test
# How many mutants are tried at once.
JOBS ?= 2
SEEDED = MILEPOST_SEED=$(SEED) PYTHONHASHSEED=$(SEED) $(PY)
PYTEST_OPTIONS = --hypothesis-seed=$(SEED) -n $(WORKERS) --dist loadscope --no-loadscope-reorder
PYTEST = $(SEEDED) -m pytest $(PYTEST_OPTIONS)
# How many source objects `make fuzz` breaks.
OBJECTS ?= 20000
# How many random jobs `make law` runs.
EXAMPLES ?= 5000
# How many random statements, and edits of them, `make sql-law` runs.
SELECTS ?= 5000
EDITS ?= 5000
# How long `make chaos` goes on.
MINUTES ?= 10
# How many rows `make examples` gives each job.
ROWS ?= 1000000
MILEPOST_DAYS ?= 28
# Of the benchmark: quick, full, language or sql; BENCH_ARGS="--resume", or "--only workload/window".
MODE ?= quick
# Which part of its tests `make test-all` runs: 2/6 is the second of six shares.
PART ?= 1/1
# After how long a deep test fails.
DEEP_LIMIT_S := 2400
# Which pages `make transcripts` runs; none: all.
PAGES ?=
# How many places `make mutants` changes at random; none: it runs the named mutants.
SAMPLE ?=
BENCH_ARGS ?=

.PHONY: help env lint format check test durations coverage rings wording test-all mutants fuzz law sql-law chaos examples bench bench-tables bench-kafka bench-airflow demo docs pictures reference transcripts release down status clean

help: ## show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  \033[1mmake %-12s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

env: ## build the environments .venv, .venv-s3 and .venv-readers (about 3 GB; instant when nothing changed)
	@$(or $(PYTHON),$(error no Python 3.11 to 3.13 found: install one, or name it with PYTHON=/path/to/python)) scripts/bootstrap.py

lint: env ## ruff and mypy
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy | awk '{print} /unused section/ {unused = 1} END {exit unused}'

format: env ## let ruff rewrite what it can
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

check: lint ## lint and the short tests, without Spark and Airflow (2 minutes)
	@$(PYTEST) --ring check $(ARGS)

test: lint ## lint and every test that is not marked deep (10 minutes)
	@echo "seed $(SEED) (repeat this run with: make test SEED=$(SEED))"
	@$(PYTEST) --ring test $(ARGS)

durations: env ## run the tests of `make test` and write where their time goes: tests/COSTS.md, tests/durations.json
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && failed=0 \
	  && { $(PYTEST) -p scripts.suite.recorder --record-costs "$$folder/costs.json" --ring test $(ARGS) || failed=$$?; } \
	  && $(PY) -m scripts.suite.report "$$folder/costs.json" && exit $$failed

coverage: env ## what of the product `make test` reaches, by room; kept in .milepost/coverage (ARGS=tests/unit/jobspec: less)
	@$(SEEDED) -m scripts.suite.covered run .milepost/coverage -- $(PYTEST_OPTIONS) --ring test $(ARGS)
	@$(PY) -m scripts.suite.covered totals .milepost/coverage

rings: env ## list which claims each of the three rings proves (ARGS=tests/unit/jobspec: one folder, claim by claim)
	@$(PY) -m scripts.suite.rings $(ARGS)

wording: env ## rewrite the golden files of tests/wording for the tests of ARGS: review the diff (RING=test-all: deep tests)
	@$(PYTEST) --ring $(RING) --update-wording $(ARGS)

test-all: env ## everything that `make test` leaves out, and property tests with more examples (PART=2/6: a sixth of it)
	@echo "seed $(SEED) (repeat this run with: make test-all SEED=$(SEED) PART=$(PART))"
	@$(PY) -m scripts.spark.spark_readers
	@$(PY) -m scripts.older_versions
	@$(PY) -m scripts.kafka_jars
	@$(PY) -m scripts.fab
	@$(PY) -m scripts.browser
	@MILEPOST_PROFILE=deep $(PYTEST) -o faulthandler_timeout=$(DEEP_LIMIT_S) --ring test-all --part $(PART) $(ARGS)
	@$(PY) -m scripts.test_all $(PART)

pictures: env ## take the pictures of the documentation, in Airflow by a headless Chromium
	@$(PY) -m scripts.browser
	@$(PY) -m milepost_testkit.browser.pictures

mutants: env ## break rules on purpose in a copy of the tree: tests must fail (minutes; SAMPLE=300 SEED=1: at random)
	@$(PY) -m $(if $(SAMPLE),scripts.sampling.sampled_mutants --sample $(SAMPLE) --seed $(SEED),scripts.mutants) --jobs $(JOBS)

fuzz: env ## break OBJECTS=20000 source objects at random and read them: rows or typed errors, nothing dies (minutes)
	@$(PY) -m milepost_testkit.tasks.faults.reader_fuzz --objects $(OBJECTS) --seed $(SEED)
	@$(PY) -m milepost_testkit.jobs.message_fuzz --objects $(OBJECTS) --seed $(SEED)

law: env ## run EXAMPLES=5000 random jobs: with nothing in flight, each node is its batch query, by DuckDB (minutes)
	@$(PY) -m milepost_testkit.law.run --examples $(EXAMPLES) --seed $(SEED)

sql-law: env ## run SELECTS=5000 random statements and EDITS=5000 random edits of them: each table is DuckDB's answer (hours)
	@$(PY) -m milepost_testkit.law.sql_run --selects $(SELECTS) --edits $(EDITS) --seed $(SEED)

chaos: env ## random jobs, faults, kills and commands for MINUTES=10; nothing may be lost or doubled
	@$(PY) -m milepost_testkit.chaos.campaign --minutes $(MINUTES) --seed $(SEED)

examples: env ## run the example jobs over ROWS=1000000 generated rows, with rollback and backfill (minutes)
	@$(PY) -m milepost_testkit.example_jobs.run --rows $(ROWS) --seed $(SEED)

bench: env ## side by side with Structured Streaming and PyFlink; writes bench/RESULTS.md (12 minutes; MODE=full: 75; language: 12; sql: 40)
	@$(PY) -m bench.environments
	@$(PY) -m bench run --mode $(MODE) $(BENCH_ARGS)

bench-tables: env ## open tables beside Spark's MERGE, delta-rs and DuckDB; writes bench/TABLES.md (6 minutes; MODE=full: 25)
	@$(PY) -m bench.environments .venv-bench
	@$(PY) -m scripts.spark.spark_readers
	@$(PY) -m bench tables --mode $(MODE) $(BENCH_ARGS)

bench-kafka: env ## Kafka beside Structured Streaming and PyFlink, landing alone, 10,000 landings; writes bench/KAFKA.md (MODE=full)
	@$(PY) -m bench.environments kafka
	@$(PY) -m bench kafka --mode $(MODE) $(BENCH_ARGS)

bench-airflow: env ## epochs through a real Airflow beside empty tasks and beside availableNow; writes bench/AIRFLOW.md (half an hour)
	@$(PY) -m bench airflow $(BENCH_ARGS)

demo: env ## S3, Spark, Airflow and 28 days of real flights in 7 epochs; again: the next 28 days
	@exec $(PY) -m scripts.demo --days $(MILEPOST_DAYS)

docs: env ## build the documentation as a site into site/
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet
	@echo "site/index.html"

reference: env ## write the pages of docs/ that follow from the code
	@$(PY) -m scripts.reference

transcripts: env ## run the pages of README and docs, and write there what their commands print (PAGES=docs/how-to/gate.md)
	@$(PY) -m scripts.transcripts $(PAGES)

release: env ## build and check the distribution of a commit in dist/, with its packages and licences (a minute; TRIAL=1: no date needed)
	@$(PY) -m scripts.release $(if $(TRIAL),--trial)

down: ## stop exactly what `make demo` started
	@if [ -x $(PY) ]; then exec $(PY) -m scripts.stack down; else echo "nothing is running: $(PY) does not exist"; fi

status: ## what of the demo is running, and where
	@if [ -x $(PY) ]; then exec $(PY) -m scripts.stack status; else echo "nothing is running: $(PY) does not exist"; fi

clean: down ## stop the demo and delete its data and every cache; keeps the environments
	@rm -rf .milepost site .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -path './.venv*' -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
