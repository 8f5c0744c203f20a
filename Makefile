# Everything a developer or CI calls. `make` alone lists it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

IN_VENV = venv=$$(tools/setup) && export PATH="$$venv/bin:$$PATH" &&
RELEASES = bookworm trixie sid
# A test that fails is run once more, since a busy machine can make a real Slurm, a browser or a daemon with a real clock
# slow beyond any patience; the summary says why.
ONCE_MORE = --reruns 1 -rR --rerun-show-tracebacks
# Two workers with a cluster each: these tests wait more than they compute.
ON_CLUSTERS = -m cluster -n 2 --dist loadfile $(ONCE_MORE)

.PHONY: help
help: ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 22

.PHONY: demo
demo: ## set everything up, run a contest on a real Slurm cluster, print what happened
	@$(IN_VENV) python docker/demo.py

.PHONY: down
down: ## stop the cluster and remove its data
	@docker/cluster down

.PHONY: lint
lint: ## style, types, layers
	@$(IN_VENV) ruff check . && ruff format --check . && mypy && lint-imports

.PHONY: test
test: lint ## everything: lint, types, layers, unit, Lua, Postgres, the cluster
	@docker/cluster build
	@$(IN_VENV) pytest -n 2 -m "not cluster" $(ONCE_MORE)
	@$(IN_VENV) pytest $(ON_CLUSTERS)

.PHONY: test-quick
test-quick: lint ## what needs no cluster
	@$(IN_VENV) pytest -n 2 -m "not cluster"

.PHONY: test-matrix
test-matrix: ## the cluster tests on Slurm 22.05, 24.11 and 26.05
	@$(IN_VENV) for release in $(RELEASES); do \
	    echo "== cluster tests on $$release"; \
	    docker/cluster build --release $$release; \
	    FAIRSHARE_TEST_RELEASE=$$release pytest $(ON_CLUSTERS); \
	done

.PHONY: chaos
chaos: ## break everything in turn on the cluster under load; about a quarter of an hour
	@$(IN_VENV) pytest -m chaos -s tests/chaos

.PHONY: format
format: ## put the code into shape
	@$(IN_VENV) ruff check --fix . && ruff format .

.PHONY: web
web: ## the dashboard on an invented lab, at http://127.0.0.1:8080 (LISTEN=HOST:PORT elsewhere)
	@$(IN_VENV) python -m tests.web.demo $${LISTEN:-127.0.0.1:8080}

.PHONY: bench-web
bench-web: ## the dashboard under 200 readers for a minute: 10,000 jobs in the queue; then beside a living Slurm
	@$(IN_VENV) python -m benchmarks.bench_web && python -m benchmarks.bench_web --cluster

.PHONY: docs
docs: ## the pages as HTML, in docs/_build
	@$(IN_VENV) sphinx-build -W --keep-going -q -b html docs docs/_build && echo "docs/_build/index.html"

.PHONY: reference
reference: ## write docs/reference from the code
	@$(IN_VENV) python -m slurm_fairshare.cli.reference

.PHONY: package
package: ## the wheel and the source archive, in dist/
	@$(IN_VENV) rm -f dist/slurm_fairshare-* && python -m build -q --outdir dist . && ls -l dist

.PHONY: bench-sim
bench-sim: ## the simulator: speed, known answers, policies side by side on a public trace
	@$(IN_VENV) python -m benchmarks.bench_sim

.PHONY: bench-thousand
bench-thousand: ## the simulator: 1,000 GPUs for 30 days over three seeds, against all aims at once; a few minutes
	@$(IN_VENV) python -m benchmarks.bench_thousand

.PHONY: validate
validate: ## the simulator held to ten runs of one workload on the real cluster; about an hour (RUNS=N, KEEP=DIR)
	@$(IN_VENV) python -m benchmarks.validate --runs $${RUNS:-10} --keep $${KEEP:-build/validate}

.PHONY: bench-ledger
bench-ledger: ## the ledger: reading accounting beside slurm2sql and a bare COPY; a tick over 1,000,000 runs
	@$(IN_VENV) python -m benchmarks.bench_ledger

.PHONY: bench-rebalance
bench-rebalance: ## a rebalance pass over 5,000 running and 50,000 waiting jobs
	@$(IN_VENV) python -m benchmarks.bench_rebalance

.PHONY: soak
soak: ## an hour of random submissions on the real cluster, checked against every promise
	@$(IN_VENV) python -m benchmarks.soak
