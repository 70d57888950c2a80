# make help lists the targets.
.DEFAULT_GOAL := help

# As in the released binary. The race detector needs cgo, and test/run switches it on.
export CGO_ENABLED = 0

.PHONY: help
help: ## List the targets, and the parts of slow.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@printf '\nparts of slow:\n'
	@go run ./test/run parts

.PHONY: build
build: ## Build bin/leaderboard, a static binary.
	go build -trimpath -o bin/leaderboard ./cmd/leaderboard

.PHONY: check
check: ## Run all that CI runs at every change.
	./scripts/check.sh

.PHONY: test
test: ## Run the tests that need no server and no network.
	go test ./...

.PHONY: generate
generate: ## Generate code from the protos, and the pages from web/; the tree is clean afterwards.
	go generate ./...

# Some official results must not be redistributed. The nightly run lacks them, and sets 0.
REQUIRE_DATASETS ?= 1

.PHONY: slow
slow: ## Run what check leaves out, or some parts of it: make slow PART="clusters faults".
	REQUIRE_DATASETS=$(REQUIRE_DATASETS) go run ./test/run slow $(PART)

.PHONY: vulnerabilities
vulnerabilities: ## Look for known vulnerabilities in the code that the binary calls. Needs a network.
	"$$(go -C tools tool -n govulncheck)" ./...

.PHONY: bench
bench: ## Run the benchmarks of the rank index and the store.
	go test -run '^$$' -bench . -benchmem ./cache/... ./storage/pebble/...

.PHONY: cluster-up
cluster-up: ## Start Cassandra, Kafka and Redis for tests, and print their addresses. UP=-secure: with TLS and passwords.
	go run ./test/cluster/cmd up -d $(UP)

.PHONY: cluster-down
cluster-down: ## Stop the servers that cluster-up started.
	go run ./test/cluster/cmd down
