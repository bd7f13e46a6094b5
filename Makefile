# The README's commands. Each is one `knobless` command, or one test run; `make help` lists them.
PYTHON ?= python3
K := $(PYTHON) ./knobless
RUN := .venv/bin/python -m

.DEFAULT_GOAL := help
.PHONY: help up down down-all status test test-engines test-flavors test-learning test-soak check fast lint types layers bench bench-autoscaler bench-prefix bench-rows bench-runtimes bench-scale footprint env-dev

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

up: ## build what is missing, start the platform and every endpoint under stacks/, send a prediction
	@$(K) up

down: ## stop everything that runs; tools, images, MLflow's data and keys stay
	@$(K) down

down-all: ## stop everything and remove every file that `make up` made outside this folder
	@$(K) down --purge

status: ## what runs
	@$(K) status

test: check ## the whole suite, on an embedded cluster of its own (about half an hour once tools are cached)
	@$(RUN) pytest -n 2 --dist loadscope --durations 15 -m "(cluster or process or slow) and not engines and not flavors and not learning and not soak"

test-engines: env-dev ## vLLM, Triton and LightGBM on the suite's cluster, their images built for it (half an hour, then ten minutes)
	@$(RUN) pytest -s -m engines

test-flavors: env-dev ## PyTorch, TensorFlow, transformers, statsmodels, Prophet, LangChain: bit for bit as pyfunc (6 GB once)
	@$(RUN) pytest --durations 5 -m flavors

test-learning: env-dev ## learning, a step of twenty and its decider killed, on the suite's cluster (a quarter of an hour)
	@$(RUN) pytest -s -m learning

test-soak: env-dev ## 100,000 requests on each engine, 1,000 restarts, 36,000 probes: what grows with them (half an hour)
	@$(RUN) pytest -s -m soak

check: env-dev lint types layers fast ## lint, types, layers and the fast tests, no cluster: under a minute

env-dev:
	@KNOBLESS_DEV=1 $(K) --version >/dev/null

lint: env-dev
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .

types: env-dev
	@$(RUN) mypy

layers: env-dev
	@.venv/bin/lint-imports

fast: env-dev
	@$(RUN) pytest -q -n 2 -m "not cluster and not process and not slow"

bench: env-dev ## latency through our gateway over a bare HAProxy; table, and JSON under bench-results/
	@$(RUN) tests.bench.gateway_latency

bench-autoscaler: env-dev ## our autoscaler and its rivals in simulation, goals beside results (at most 10 minutes; FULL=1: all)
	@$(RUN) tests.bench.autoscaler $(if $(FULL),--full)

bench-prefix: env-dev ## prefix affinity beside the least busy replica: vLLM's cache, CPU, latency, HAProxy's CPU (6 minutes)
	@$(RUN) tests.bench.prefix_affinity

bench-runtimes: env-dev ## our MLflow runtime beside MLflow's server, KServe's, MLServer's (at most 10 minutes; QUICK=1: 4)
	@$(RUN) tests.bench.runtimes $(if $(QUICK),--quick)

bench-rows: env-dev ## what a hundred connections, large bodies, batches and a quota of threads cost, two ways in one run (5 minutes)
	@$(RUN) tests.bench.runtime_rows

bench-scale: env-dev ## the autoscaler's CPU and memory at 10,000 endpoints, and what its reading costs HAProxy (4 minutes)
	@$(RUN) tests.bench.autoscaler_scale

footprint: env-dev ## memory of the running local stack, by program
	@$(RUN) tests.bench.stack_footprint
