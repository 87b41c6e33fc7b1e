.DEFAULT_GOAL := help
.PHONY: help venv dev jars demo test damage backfill conformance-spark kill-kafka kill-spark rebalance-kafka check \
	bench-core bench-log bench-load bench-restore bench-spark lock clean

VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.core
DEV := $(VENV)/.dev
JARS := $(VENV)/jars
FETCHED := $(JARS)/.fetched
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation
MAVEN := mvn --batch-mode --quiet --no-transfer-progress --file tests/kafka/pom.xml
WORKERS ?= 2

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(CORE) ## make the virtual environment in .venv with the core alone, enough for the demo

dev: $(DEV) ## add to it what tests, checks and benchmarks need: Spark, the Kafka client and the tools

jars: $(FETCHED) ## fetch a Kafka broker, Kafka Streams and Spark's Kafka connector for tests (needs a JDK 17 and Maven)

demo: venv ## run an example topology and show its results as a table
	$(BIN)/python -m examples.demo

test: dev jars ## run the tests and the doctests of package, README and docs
	$(BIN)/pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder

damage: dev ## spoil files of log and state 1,000 times and start the application, which takes a quarter of an hour
	HEADWATER_DAMAGE=many $(BIN)/pytest -q -rP -n 0 tests/crash/test_damage.py

conformance-spark: dev jars ## replay all golden traces on Spark, which takes about half an hour
	HEADWATER_SPARK=all $(BIN)/pytest -q -n $(WORKERS) tests/spark/test_traces.py

kill-kafka: dev jars ## kill workers on Kafka 40 times for each of 5 seeds, which takes a quarter of an hour
	HEADWATER_KILLS=many $(BIN)/pytest -q -n 0 tests/kafka/test_kills.py

kill-spark: dev jars ## kill a query's JVM 10 times, on the log and on Kafka, which takes ten minutes
	HEADWATER_KILLS=many $(BIN)/pytest -q -n 0 tests/spark/test_restart.py

backfill: dev jars ## run every topology with a repartition over 20,000 records, on every back end, which takes half an hour
	HEADWATER_BACKFILL=all $(BIN)/pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder tests/backfill \
		tests/kafka/test_partitions.py tests/spark/test_partitions.py

rebalance-kafka: dev jars ## let workers on Kafka come and go for two minutes, and measure the pauses
	HEADWATER_REBALANCE=long $(BIN)/pytest -q -n 0 tests/kafka/test_rebalance.py

check: dev ## lint (ruff), types (mypy, strict) and the rules of the house
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -q tests/test_house.py

bench-core: dev ## measure records per second through the task, beside a hand-written loop
	$(BIN)/python -m benchmarks.core

bench-log: dev ## measure records per second into and out of the embedded log, beside a bare loop
	$(BIN)/python -m benchmarks.log

bench-load: dev ## count ten million records over a million keys, and watch rate and memory
	$(BIN)/python -m benchmarks.load

bench-restore: dev jars ## restore a million keys from a changelog on Kafka, beside a bare consumer loop into RocksDB
	$(BIN)/python -m benchmarks.restore

bench-spark: dev jars ## measure jobs on Spark over a million Kafka records, beside the same jobs by hand
	$(BIN)/python -m benchmarks.spark

lock: ## pin the newest allowed dependencies in requirements.lock (needs uv)
	uv pip compile pyproject.toml --extra dev --extra kafka --extra spark --universal --python-version 3.11 \
		--upgrade --quiet --no-header --no-annotate --no-emit-index-url --output-file requirements.lock

clean: ## remove the virtual environment, caches and build results
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Each stamp is written last: an interrupted installation is done again. The core alone takes its versions from the lock
# too, as constraints.
$(CORE): requirements.lock pyproject.toml
	@for python in python3 python3.13 python3.12 python3.11; do \
		if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
		echo "Headwater needs Python 3.11 or newer on the PATH; python3 is: $$(python3 --version 2>&1)" >&2; exit 1; \
	fi; \
	$(BIN)/python -c '' 2>/dev/null || { echo "Making $(VENV) with $$($$found --version)"; $$found -m venv --clear $(VENV); }
	$(PIP) --constraint requirements.lock setuptools
	$(PIP) --constraint requirements.lock --editable .
	@touch $@

$(DEV): $(CORE)
	$(PIP) --requirement requirements.lock
	@touch $@

$(FETCHED): tests/kafka/pom.xml | $(CORE)
	@version=$$(javac -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p'); \
	if [ "$${version:-0}" -lt 17 ]; then \
		echo "The tests need a JDK of Java 17 or newer on the PATH: install openjdk-17-jdk-headless (Debian, Ubuntu)," \
			"java-17-openjdk-devel (Fedora) or openjdk@17 (Homebrew)." >&2; exit 1; \
	fi; \
	if ! command -v mvn >/dev/null; then \
		echo "The tests need Maven, which fetches a Kafka broker, Kafka Streams and Spark's Kafka connector:" \
			"install maven (Debian, Ubuntu, Fedora, Homebrew)." >&2; exit 1; \
	fi
	rm -rf $(JARS)
	$(MAVEN) --activate-profiles broker dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/$(JARS)/broker
	$(MAVEN) --activate-profiles broker dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/$(JARS)/broker-4.2 \
		-Dkafka=4.2.1
	$(MAVEN) --activate-profiles streams dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/$(JARS)/streams
	$(MAVEN) --activate-profiles spark dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/$(JARS)/spark
	@touch $@
