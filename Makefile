# `make` alone lists the targets. Everything is built from the module proxy; nothing here needs root, but for installing
# PostgreSQL's programs where they are missing.

SHELL := /bin/bash -euo pipefail
.DEFAULT_GOAL := help

# Only cmd/nvml-exporter with a real NVML needs cgo; without it everything else is one static program per command.
export CGO_ENABLED := 0
export GOWORK := off

# The tests of few packages run at a time: each starts a PostgreSQL and a control plane of its own.
TEST_PACKAGES ?= ./...
TEST_PARALLEL ?= 2
# Passed to go test, for example: make test TEST_PACKAGES=./pkg/ledger/... TEST_FLAGS='-run TestHold -v'
TEST_FLAGS ?=
# Which benchmark; empty for all. See DESIGN.md, benchmarks.
BENCH ?=

GO_FOLDERS := api bench cmd hack internal pkg test
GOFMT_FOLDERS := $(wildcard $(GO_FOLDERS))
PROGRESS := hack/progress

.PHONY: help
help: ## list the targets
	@echo "gpubank: GPU time as something teams own, spend and can audit"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##  The product, running

.PHONY: demo
demo: serving postgres local ## one team's credits, from grant to statement, on real parts; leaves nothing running
	@bin/gpubank-local demo

.PHONY: up
up: controlplane postgres local ## start a cluster with gpubank in the background, to explore
	@bin/gpubank-local up

.PHONY: down
down: local ## stop what `make up` started and remove its data
	@bin/gpubank-local down

##  Checks

.PHONY: test
test: serving postgres kueue lint ## all tests, on a real control plane and a real PostgreSQL
	@$(PROGRESS) "compiling the tests" go test -p $(TEST_PARALLEL) -run '^$$' $(TEST_PACKAGES) > /dev/null
	@$(PROGRESS) "testing" go test -p $(TEST_PARALLEL) -timeout 40m $(TEST_FLAGS) $(TEST_PACKAGES)
	@$(MAKE) --no-print-directory test-throughput test-nvml

# Its full size is `make bench BENCH=throughput`; here it runs so that it cannot rot.
.PHONY: test-throughput
test-throughput:
	@$(PROGRESS) "benchmarking throughput, once and small" go test ./bench/throughput -run '^$$' -bench . -benchtime 1x -short > bin/throughput.log || { tail -100 bin/throughput.log; exit 1; }
	@tail -1 bin/throughput.log

.PHONY: test-nvml
test-nvml: ## the tests and programs that need a C compiler
	@if command -v "$${CC:-cc}" > /dev/null; then \
		CGO_ENABLED=1 $(PROGRESS) "testing NVML with cgo" go test ./pkg/nvml/... && \
		CGO_ENABLED=1 $(PROGRESS) "building nvml-exporter with cgo" go build -o bin/nvml-exporter ./cmd/nvml-exporter; \
	else \
		echo "there is no C compiler, so NVML's cgo part was not tested; install one with: sudo apt-get install -y gcc libc6-dev"; \
		test -z "$${REQUIRE_CGO:-}"; \
	fi

# Which, of those in hack/postgresql/package.json.
POSTGRES_VERSIONS ?= 16 17 18
.PHONY: test-postgres-versions
test-postgres-versions: ## the ledger's tests on PostgreSQL 16, 17 and 18, whose programs come from npm
	@programs="$$($(PROGRESS) "installing PostgreSQL $(POSTGRES_VERSIONS)" hack/postgresql/install)"; \
	machine="$$(case "$$(uname -m)" in aarch64 | arm64) echo arm64 ;; *) echo x64 ;; esac)"; \
	for version in $(POSTGRES_VERSIONS); do \
		export GPUBANK_POSTGRES_BIN="$$programs/postgresql-$$version-$$machine/native/bin"; \
		"$$GPUBANK_POSTGRES_BIN/postgres" --version; \
		$(PROGRESS) "testing the ledger on PostgreSQL $$version" go test -timeout 20m ./pkg/ledger/postgres; \
	done

.PHONY: lint
lint: ## gofmt and go vet, with and without failpoints
	@unformatted="$$(gofmt -l $(GOFMT_FOLDERS))"; \
	if [[ -n "$$unformatted" ]]; then echo "not formatted; run: gofmt -w $$unformatted"; exit 1; fi
	@$(PROGRESS) "checking with go vet" go vet ./...
	@$(PROGRESS) "checking the programs with failpoints" go vet -tags failpoints ./cmd/... ./internal/...

.PHONY: generate
generate: ## deep copies and CRDs from api/
	@$(PROGRESS) "building controller-gen" go build -C hack/tools -o "$(CURDIR)/bin/controller-gen" sigs.k8s.io/controller-tools/cmd/controller-gen
	@bin/controller-gen object paths=./api/...
	@bin/controller-gen crd paths=./api/v1alpha1 output:crd:dir=manifests/crd

.PHONY: verify
verify: generate test ## generate, lint, test; fails unless the tree is clean afterwards
	@changes="$$(git status --porcelain)"; \
	if [[ -n "$$changes" ]]; then echo "the tree is not clean after generating and testing:"; echo "$$changes"; git --no-pager diff; exit 1; fi
	@echo "verified: generated code is current, all checks pass, the tree is clean"

# How long, from which seed (0 for a random one), and how many commands each seed has.
SOAK_DURATION ?= 1h
SOAK_SEED ?= 0
SOAK_COMMANDS ?= 50000
.PHONY: soak
soak: postgres ## simulate the ledger under faults, seed after seed, for SOAK_DURATION (1h)
	@$(PROGRESS) "building the simulation" go build -o bin/soak ./test/simulation/soak
	@exec bin/soak -duration $(SOAK_DURATION) -seed $(SOAK_SEED) -commands $(SOAK_COMMANDS)

.PHONY: bench
bench: controlplane postgres ## measure, into bench/results; BENCH=<name> for one
	@$(PROGRESS) "building the benchmarks" go build -o bin/bench ./bench
	@bin/bench $(BENCH)

##  What they stand on

.PHONY: controlplane
controlplane: ## build etcd, kube-apiserver and the others once, into the user's cache
	@go build -o bin/controlplane ./test/cluster/cmd/controlplane
	@bin/controlplane

# What the tests and the demo need of it: kubectl and kube-scheduler can wait.
.PHONY: serving
serving:
	@go build -o bin/controlplane ./test/cluster/cmd/controlplane
	@bin/controlplane etcd kube-apiserver kube-controller-manager

.PHONY: kueue
kueue: ## build Kueue's manager once, into the user's cache; only its tests need it
	@go build -o bin/kueue ./test/cluster/cmd/kueue
	@bin/kueue

.PHONY: postgres
postgres: ## install PostgreSQL and PgBouncer if they are missing and this is root on Debian or Ubuntu
	@$(PROGRESS) "building the installer" go build -o bin/postgres ./test/cluster/cmd/postgres
	@bin/postgres

.PHONY: local
local:
	@$(PROGRESS) "building the local cluster's command" go build -o bin/gpubank-local ./test/local
