# "make test" and "make demo" find their servers by themselves: by DATABASE_URL,
# AMQP_URL and KAFKA_BROKERS, else with Docker, else with the PostgreSQL and the
# RabbitMQ of this machine, and a Kafka that Maven fetches; what is missing is
# installed with apt-get. See internal/cmd/services.

# Further flags for go test, such as: make test TEST_FLAGS='-v -run Inbox'
TEST_FLAGS ?=
# The packages that make microbench measures.
BENCH ?= ./consumer/... ./inbox/...
# What make bench measures, such as: make bench BENCH_FLAGS='-brokers rabbitmq -rounds 1'
BENCH_FLAGS ?= -write

services := bin/services
staticcheck := bin/staticcheck
revive := bin/revive

# Besides servers, the tests start private ones, which they kill and restart:
# this takes the programs. gcc is for the race detector.
test_packages := gcc,postgresql,rabbitmq-server,pgbouncer

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(services) ## Kill workers at the worst moment, and see each message take effect once
	$(services) run -- go run ./examples/chaos -demo

.PHONY: test
test: $(services) ## Run all tests with the race detector
	$(services) -install $(test_packages) run -- tools/each-module go test -race -count=1 $(TEST_FLAGS) ./...

.PHONY: test-short
test-short: ## Run the tests that need no servers
	tools/each-module go test -short $(TEST_FLAGS) ./...

.PHONY: bench
bench: $(services) ## Compare with loops by hand and with Watermill, and write docs/benchmarks.md (half an hour)
	go -C bench build -o ../bin/bench .
	cd bench && ../$(services) run -- ../bin/bench $(BENCH_FLAGS)

.PHONY: bench-quick
bench-quick: $(services) ## The same with few messages and without old rows; writes nothing
	go -C bench build -o ../bin/bench .
	cd bench && ../$(services) run -- ../bin/bench -rounds 2 -scale 0.2 -skip old-rows-10m

.PHONY: microbench
microbench: $(services) ## Run the Go benchmarks
	$(services) run -- go test -run '^$$' -bench . $(BENCH)

.PHONY: mutants
mutants: $(services) ## Break the code on purpose, in one place after the other: a test must notice each
	$(services) -install $(test_packages) run -- go run ./internal/cmd/mutants

.PHONY: lint
lint: $(staticcheck) $(revive) ## Check the format, the code and the module files
	@unformatted=$$(gofmt -l .) && test -z "$$unformatted" || { echo "run gofmt -w on:"; echo "$$unformatted"; exit 1; }
	tools/each-module go vet ./...
	tools/each-module $(CURDIR)/$(staticcheck) ./...
	tools/each-module $(CURDIR)/$(revive) -config $(CURDIR)/tools/revive.toml -set_exit_status ./...
	tools/each-module go mod tidy -diff
	cd tools && go mod tidy -diff

.PHONY: services
services: $(services) ## Start PostgreSQL, RabbitMQ and Kafka and leave them running, for go test
	$(services) up

.PHONY: services-down
services-down: $(services) ## Stop what "make services" started, and delete its data
	$(services) down

# Built, not "go run": that would pass neither signals nor the exit code. Go
# knows better than make what has changed, and is quick when nothing has.
.PHONY: $(services) $(staticcheck) $(revive)
$(services):
	@go build -o $@ ./internal/cmd/services

# The linters, in the versions of tools/go.mod.
$(staticcheck):
	@go build -modfile=tools/go.mod -o $@ honnef.co/go/tools/cmd/staticcheck

$(revive):
	@go build -modfile=tools/go.mod -o $@ github.com/mgechev/revive
