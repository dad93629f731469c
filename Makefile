# Every target sets up what it needs: a virtual environment in .venv, filled from PyPI. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DIST := dist
# The targets start hundreds of processes: where no bytecode is kept, each compiles all that it imports, for a second.
unexport PYTHONDONTWRITEBYTECODE
# What is tried is what users run: where this is set, Python's streams keep nothing.
unexport PYTHONUNBUFFERED

.PHONY: help map run test check crash-states simulate planted attacks damage fuzz promises mutations chaos chaos-spark bench bench-fanout bench-spark conformance test-spark versions package clean

help: ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

run: $(STAMP) ## the main job on real input: 336,776 flights through a broker that is killed half-way, then through a shadow
	@$(BIN)/python -m bench.flights

test: $(STAMP) ## every test that needs nothing but PyPI (below ten minutes)
	@# The first two measure alone. The others are `make crash-states`, and `make planted`, which tests the tests.
	@$(BIN)/python -m pytest -q -n auto --dist worksteal --ignore tests/attacks --ignore tests/chaos \
		--ignore tests/simulation/test_crash_states.py --ignore-glob 'tests/simulation/test_planted*.py'

check: $(STAMP) ## format, lint, types, import rules, tidiness, and the built package
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/mypy -p bench
	@$(BIN)/python -m pytest -q -p no:cacheprovider tests/house --wheel

simulate: $(STAMP) ## brokers, ledgers, clusters, shadows, groups, logs, plans, quotas, conditional writes, tables, spark under faults: SEEDS=1000 [FIRST_SEED=n] [OF=broker|ledgers|cluster|shadows|groups|logs|plans|quotas|conditional|tables|spark], or one told: SEED=n [OF=…] [ALL=1]
ifdef SEED
	@SEED=$(SEED) OF=$(or $(OF),cluster) ALL=$(ALL) $(BIN)/python tests/simulation/replay.py
else
	@SEEDS=$(or $(SEEDS),1000) FIRST_SEED=$(or $(FIRST_SEED),0) PROCESSES=$(or $(PROCESSES),$(shell nproc)) \
		$(BIN)/python -m pytest -q -s tests/simulation$(if $(OF),/test_$(OF:%s=%)_sweep.py) -k "sweep and test_no"
endif

crash-states: $(STAMP) ## each state in which a power failure can leave the stores of entries, metadata and tables: a minute
	@$(BIN)/python -m pytest -q -n auto tests/simulation/test_crash_states.py

planted: $(STAMP) ## bugs planted into the product, and how many seeds find each: SEEDS=500, or QUICK=1 for those that a few seeds or a test of their own find
	@SEEDS=$(or $(SEEDS),500) $(BIN)/python -m pytest -q tests/simulation/test_planted*.py $(if $(QUICK),-n auto,--planted)

attacks: $(STAMP) ## hostile requests to a real broker beside a healthy client: a table of memory, processor time and the client's slowest answer
	@$(BIN)/python -m pytest -q -s -p no:cacheprovider tests/attacks

damage: $(STAMP) ## PLACES=1000 copies of a data directory, each damaged in one place [SEED=n]: what a broker, and a bookie of a cluster, makes of it
	@PLACES=$(or $(PLACES),1000) SEED=$(or $(SEED),1) $(BIN)/python -m pytest -q -s -p no:cacheprovider tests/damage

fuzz: $(STAMP) ## CHANGES=10000000 record batches with drawn changes, decoded by columns and record by record, 11 minutes [SEED=n]
	@CHANGES=$(or $(CHANGES),10000000) SEED=$(or $(SEED),1) PROCESSES=$(or $(PROCESSES),$(shell nproc)) \
		$(BIN)/python -m pytest -q -p no:cacheprovider tests/fuzz

promises: $(STAMP) ## real processes, native clients: SEEKS=500 of each kind of consumer under steady produce, CALLS=1000 cancelled at drawn steps
	@SEEKS=$(or $(SEEKS),500) CALLS=$(or $(CALLS),1000) $(BIN)/python -m pytest -q -s -p no:cacheprovider tests/promises

mutations: $(STAMP) ## changes the pure modules of bookie and partition one expression at a time, and lists what no test notices: OF=partition|bookie, a few minutes each
	@$(BIN)/python -m pip install -q --disable-pip-version-check 'mutmut>=3.8'
	@$(BIN)/python tests/house/mutations.py $(or $(OF),partition)

chaos: $(STAMP) ## a real cluster and real clients, its processes killed and stopped, disks filled, links cut (root): MINUTES=10 [SEED=n] [METADATA=etcd]
	@MINUTES=$(or $(MINUTES),10) SEED=$(SEED) METADATA=$(METADATA) $(BIN)/python -m pytest -q -s -p no:cacheprovider tests/chaos

chaos-spark: $(STAMP) ## two stages of Spark on a real cluster; drivers, JVMs, workers, brokers and bookies killed (-9): RUNS=100 [SEED=n], some 40 s each (Java 17; installs pyspark)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[lake]'
	@RUNS=$(or $(RUNS),1) SEED=$(SEED) $(BIN)/python -m pytest -q -s -p no:cacheprovider tests/chaos_spark --spark

bench: $(STAMP) ## gnomon, its floor, Apache Kafka, etcd, Redis and NATS side by side, about an hour: ONLY="table-put-50x1 table-large" (needs cc; Java 17 and Maven, Go, redis-server)
	@$(BIN)/python -m bench $(addprefix --only ,$(ONLY)) $(ARGS)

bench-fanout: $(STAMP) ## many readers of a source and its shadows, about an hour: ONLY="storage subscriptions consumers delay produce" ROUNDS=3 INTO=docs
	@$(BIN)/python -m bench.fanout $(addprefix --only ,$(ONLY)) --rounds $(or $(ROUNDS),3) --into $(or $(INTO),bench/results) $(ARGS)

bench-spark: $(STAMP) ## Spark with gnomon's format and with its own connector (Java 17, Maven): ONLY="read-cluster sink" ROUNDS=5 ROWS=1000000 INTO=docs
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[lake]'
	@$(BIN)/python -m bench.spark $(addprefix --only ,$(ONLY)) --rounds $(or $(ROUNDS),5) --rows $(or $(ROWS),1000000) --into $(or $(INTO),bench/results) $(ARGS)

conformance: $(STAMP) ## other people's clients against a broker, a cluster, and shadows in one: Java, kcat, franz-go, kafkajs, where present
	@$(BIN)/python -m pytest -q -rs tests/conformance --all-clients
	@$(BIN)/python -m pytest -q -rs tests/conformance --all-clients --cluster
	@$(BIN)/python -m pytest -q -rs tests/conformance --all-clients --shadows

test-spark: $(STAMP) ## pipelines, and both formats, gnomon and Spark's own connector, in Spark itself (Java 17; installs pyspark, 456 MB; jars through Maven)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[lake]'
	@$(BIN)/python -m pytest -q -rs tests/with_spark --spark

versions: $(STAMP) ## the fixtures, the front ends and more with the lowest versions of all dependencies and with the newest
	@$(BIN)/python tests/house/versions.py

package: $(STAMP) ## wheel, source distribution and container file into dist/: then docker build -t gnomon dist
	@rm -f $(DIST)/gnomon-*
	@$(BIN)/python -m build -q --outdir $(DIST) .
	@cp Dockerfile $(DIST)/

map: $(STAMP) ## every file with the first line of its docstring
	@$(BIN)/python tests/house/file_map.py

clean: ## removes what the targets made
	rm -rf $(VENV) .cache build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(STAMP): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing gnomon and its tools from PyPI into $(VENV)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check --upgrade pip
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	@touch $@
