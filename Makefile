# Every target needs Go, make and a POSIX shell: Go downloads the modules, and the tools are built from
# source at the versions pinned in tools/go.mod. The tests of sqltest, examples/feed and cmd/settle need servers, see CONTRIBUTING.md.

# The root module and each nested one, up to two folders down. A new nested module is picked up by its go.mod.
MODULES := . $(filter-out tools,$(patsubst %/go.mod,%,$(wildcard */go.mod */*/go.mod)))

GO        ?= go
TESTFLAGS ?= -timeout=15m
BENCH     ?= .
BENCHTIME ?= 1s
SEEDS     ?= 2000
SEED      ?= 0
SIMTIME   ?= 0
FUZZ      ?= ^Fuzz
FUZZTIME  ?= 10s

# The race detector needs cgo. Where there is no C compiler the tests run without it, but
# not in CI: there the same lack is an error.
ifeq ($(CI),true)
RACE := -race
else
RACE := $(if $(filter 1,$(shell $(GO) env CGO_ENABLED)),-race)
endif
# -race also switches on pointer checks, which take half the time of an SQLite that was
# translated from C, and say nothing about this module. (-race=false there would spare more, and must not be: generic code of the
# standard library that is compiled there without the detector can be linked for everybody, which reports races that are none.)
RACE += $(if $(RACE),-gcflags=modernc.org/...=-d=checkptr=0)

BIN      := $(CURDIR)/bin
GOLANGCI := $(BIN)/golangci-lint
GOFUMPT  := $(BIN)/gofumpt
TOOLS    := $(BIN)/.built

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this help
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Run the lost-reply example: a charge whose answer never arrives
	$(GO) -C examples run ./lostreply

.PHONY: test
test: ## Vet and test every module, with the race detector
	@$(if $(RACE),,echo "no C compiler: testing without the race detector")
	@set -e; for m in $(MODULES); do \
		echo "== test $$m"; \
		$(GO) -C $$m vet $(RACE) ./...; \
		$(GO) -C $$m test $(RACE) -vet=off -count=1 $(TESTFLAGS) ./...; \
	done

# Without the race detector: what it would watch is what it watches in `make test`. The seeds of random runs are printed.
LIFE := (Postgres|MySQL)(Authority|Sealed|Reports|Events|LedgerModel|Feed|Traces|Conformance)|SQLite(Feed|Traces|Invariants|Reports)|LikeTheReference

.PHONY: test-life
test-life: ## More suites on every server, other drivers and isolation levels, whole products (minutes)
	$(GO) -C sqltest test -tags full -vet=off -count=1 $(TESTFLAGS) -run '^Test($(LIFE))$$' .

.PHONY: test-full
test-full: ## Every suite on every server in every configuration, and behind PgBouncer (an hour)
	SETTLE_FULL=1 $(GO) -C sqltest test -tags full $(RACE) -vet=off -count=1 -timeout=2h .

.PHONY: lint
lint: $(TOOLS) ## Lint every module and check the formatting
	@set -e; for m in $(MODULES); do \
		echo "== lint $$m"; \
		(cd $$m && $(GOLANGCI) run --config $(CURDIR)/.golangci.yml ./...); \
	done
	@echo "== gofumpt"; diff=$$($(GOFUMPT) -d .) && [ -z "$$diff" ] || \
		{ echo "$$diff"; echo "not formatted: run 'make fmt'"; exit 1; }

.PHONY: fmt
fmt: $(TOOLS) ## Format the code of every module
	@set -e; for m in $(MODULES); do \
		(cd $$m && $(GOLANGCI) fmt --config $(CURDIR)/.golangci.yml ./...); \
	done

.PHONY: crash
crash: ## Every fault at every call of every scenario, on SQLite too
	$(GO) test -count=1 -timeout=15m -run 'TestCrashLoop(Remote)?$$' ./internal/sim -crash.all
	SETTLE_CRASH=all $(GO) -C sqltest test -count=1 -timeout=15m -run TestSQLiteCrashLoop .

.PHONY: sim
sim: ## Play seeded simulations (SEEDS=n, SEED=first, or SIMTIME=60s)
	$(GO) test -count=1 -timeout=0 -v -run 'TestSeedSimulation$$' ./internal/sim -seeds=$(SEEDS) -seed=$(SEED) -simtime=$(SIMTIME)

.PHONY: linear
linear: ## Check many more concurrent histories of every store
	$(GO) -C sqltest test -run Linearizable -linear.rounds=50 -timeout=15m .

.PHONY: model
model: ## Explore the protocol's model in its large settings (minutes to an hour)
	SETTLE_MODEL=large $(GO) test -run TestModel_Explore -v -timeout 60m .

OPS ?= 5000
.PHONY: chaos
chaos: ## Kill workers, databases and the provider under load (OPS=operations)
	$(GO) -C sqltest test $(RACE) -vet=off -count=1 -v -timeout=2h -run 'TestI10_Chaos|TestOracleBites|TestI15' ./chaos -chaos.ops=$(OPS)

.PHONY: load
load: ## Load an HTTP endpoint on SQLite and PostgreSQL (LOADTIME=10s)
	$(GO) -C sqltest test -count=1 -timeout=15m -v -run TestHTTPLoad . -httpload=$(or $(LOADTIME),10s)

.PHONY: bench
bench: ## Run the benchmarks (BENCH=regexp, BENCHTIME=1s)
	@set -e; for m in $(MODULES); do \
		echo "== bench $$m"; \
		$(GO) -C $$m test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem ./...; \
	done

.PHONY: peers
peers: ## Pay on PostgreSQL by settle, by hand, by DBOS and by River, in turn (PEERS=flags)
	$(GO) -C sqltest run ./peers $(PEERS)

# `go test -list` prints the names found in a package, then a line "ok <package>".
.PHONY: fuzz
fuzz: ## Run each fuzz target for a short time (FUZZ=regexp, FUZZTIME=10s)
	@set -e; n=0; for m in $(MODULES); do \
		listed=$$($(GO) -C $$m test -list '$(FUZZ)' ./...) || { echo "$$listed"; exit 1; }; \
		targets=$$(echo "$$listed" | \
			awk '/^Fuzz/ { f[++k] = $$1 } /^ok/ { for (i = 1; i <= k; i++) print f[i] "@" $$2; k = 0 }'); \
		for t in $$targets; do \
			echo "== fuzz $$t"; n=$$((n + 1)); \
			$(GO) -C $$m test -run '^$$' -fuzz "^$${t%%@*}$$" -fuzztime $(FUZZTIME) "$${t#*@}"; \
		done; \
	done; \
	[ $$n -gt 0 ] || { echo "no fuzz target matches $(FUZZ)"; exit 1; }

.PHONY: cover
cover: ## Measure how much of the root module its own tests reach
	@$(GO) test -count=1 -coverpkg=./... -coverprofile=coverage.out ./...
	@$(GO) tool cover -html=coverage.out -o coverage.html
	@$(GO) tool cover -func=coverage.out | tail -n 1

.PHONY: mutate
mutate: $(TOOLS) ## Change the policy one operator at a time: tests must fail (an hour)
	$(GO) -C tools run ./mutate -root .. -gremlins $(BIN)/gremlins

.PHONY: tidy-check
tidy-check: ## Fail if a go.mod or go.sum is not tidy
	@set -e; for m in $(MODULES) tools; do \
		echo "== tidy $$m"; \
		$(GO) -C $$m mod tidy -diff; \
	done

.PHONY: clean
clean: ## Remove what the other targets left here
	rm -rf $(BIN) coverage.out coverage.html

# Building takes a few minutes the first time and is repeated only for another version.
$(TOOLS): tools/go.mod tools/go.sum
	@echo "building golangci-lint, gofumpt and gremlins (a few minutes the first time)"
	@mkdir -p $(BIN)
	@$(GO) -C tools build -o $(BIN)/ tool
	@touch $@
