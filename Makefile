# Every target sets up what it needs: a virtual environment in .venv, filled from PyPI. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help run test check simulate planted chaos bench conformance clean

help: ## this list
	@sed -nE 's/^([a-z]+):.*## (.*)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

run: $(STAMP) ## the main job on real input: 336,776 flights through a broker that is killed half-way
	@$(BIN)/python -m bench.flights

test: $(STAMP) ## every test that needs nothing but PyPI (below ten minutes)
	@$(BIN)/python -m pytest -q -n auto --dist worksteal

check: $(STAMP) ## format, lint, types, import rules, tidiness, and the built wheel
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/mypy -p bench
	@$(BIN)/python -m pytest -q -p no:cacheprovider tests/house --wheel

simulate: $(STAMP) ## brokers, ledgers, clusters, shadows under faults: SEEDS=1000 [FIRST_SEED=n], or one told: SEED=n [OF=broker|ledgers|cluster|shadows] [ALL=1]
ifdef SEED
	@SEED=$(SEED) OF=$(or $(OF),cluster) ALL=$(ALL) $(BIN)/python tests/simulation/replay.py
else
	@SEEDS=$(or $(SEEDS),1000) FIRST_SEED=$(or $(FIRST_SEED),0) PROCESSES=$(or $(PROCESSES),$(shell nproc)) \
		$(BIN)/python -m pytest -q -s -x tests/simulation -k test_no_seed
endif

planted: $(STAMP) ## bugs planted into the product, and how many seeds find each: SEEDS=500
	@SEEDS=$(or $(SEEDS),500) $(BIN)/python -m pytest -q tests/simulation/test_planted.py tests/simulation/test_planted_ledgers.py \
		tests/simulation/test_planted_clusters.py tests/simulation/test_planted_shadows.py --planted

chaos: $(STAMP) ## a real cluster and real clients, its processes killed and stopped, disks filled, links cut (root): MINUTES=10 [SEED=n]
	@MINUTES=$(or $(MINUTES),10) SEED=$(SEED) $(BIN)/python -m pytest -q -s -p no:cacheprovider tests/chaos

bench: $(STAMP) ## gnomon, its floor and Apache Kafka side by side (needs cc; Kafka needs Java 17 and Maven)
	@$(BIN)/python -m bench

conformance: $(STAMP) ## other people's clients against a broker and a cluster: Java, kcat, franz-go, kafkajs, where present
	@$(BIN)/python -m pytest -q -rs tests/conformance --all-clients
	@$(BIN)/python -m pytest -q -rs tests/conformance --all-clients --cluster

clean: ## removes what the targets made
	rm -rf $(VENV) .cache build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(STAMP): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing gnomon and its tools from PyPI into $(VENV)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check --upgrade pip
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	@touch $@
