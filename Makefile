# make help lists the targets.
.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/leaderboard, a static binary.
	CGO_ENABLED=0 go build -trimpath -o bin/leaderboard ./cmd/leaderboard

.PHONY: check
check: ## Run all that CI runs.
	./scripts/check.sh

.PHONY: test
test: ## Run the tests that need no server and no network.
	go test ./...

.PHONY: generate
generate: ## Generate code from the protos; the tree is clean afterwards.
	go generate ./...

# Some official results must not be redistributed. The nightly run lacks them, and sets 0.
REQUIRE_DATASETS ?= 1

.PHONY: slow
slow: ## Run what check leaves out: a marathon and two years of football through Kafka, thirty years of football embedded, servers that require TLS, servers that are killed, also under load, a soak of LEADERBOARD_TEST_SOAK (30m), more random histories, rolling seasons on Cassandra, a rolling upgrade, a void of a match of 50,000 users, sizes on Cassandra's disk, the rest of the index's suite on a cluster, go install, and archives for all platforms.
	REQUIRE_INTEGRATION=1 go test -race -timeout 60m -v -run '^Test(Cassandra|CassandraTwoDataCenters|Kafka|ServersEndWithAKilledTestProcess|TwoClustersAreSeparate)$$' ./test/cluster
	REQUIRE_INTEGRATION=1 REQUIRE_DATASETS=$(REQUIRE_DATASETS) go test -race -timeout 60m -v -p 1 -run '^TestOfficialResultsThroughKafka$$/^(Boston|F1$$)' ./test/pipeline
	REQUIRE_INTEGRATION=1 go test -race -timeout 120m -v -run '^TestRollingWindows$$|^TestLinkedFootballThroughKafka$$|^TestLinkedBoardsWhileConsumersAreKilled$$/^2500|^TestExportsGiveAnEqualDistributedServer$$' ./test/pipeline
	REQUIRE_INTEGRATION=1 go test -race -timeout 60m -v -run '^TestSecuredBackEnds$$|^TestSecuredCluster$$' ./test/pipeline ./cache/redis
	REQUIRE_INTEGRATION=1 go test -race -timeout 150m -v ./test/faults
	LEADERBOARD_TEST_RUNS=5 go test -race -timeout 60m -v -run '^TestCrash|^TestFailedWriteStopsTheStore$$|Equals?ARecount$$|^TestKilledServer' ./storage/pebble ./internal/ranking ./cmd/leaderboard
	LEADERBOARD_MATCH_USERS=50000 go test -timeout 60m -v -run '^TestAVoidReachesAllUsersOfAMatch$$' ./storage/cql
	REQUIRE_INTEGRATION=1 go test -race -timeout 60m -v -run '^TestDisk|^TestTheDriverNeverLeaves' ./storage/cql
	REQUIRE_INTEGRATION=1 go test -timeout 60m -v -run '^TestIndexOnACluster$$/^Shards$$/^(Rebuild|Update)$$' ./cache/redis
	REQUIRE_DATASETS=$(REQUIRE_DATASETS) go test -race -timeout 60m -v -run '^TestBoston$$/^runners$$/^every_user$$' ./test/official
	go test -timeout 60m -v -run '^TestLinkedFootball$$/^thirty' ./test/official
	go -C test/compose test -count=1 -timeout 60m -v -run '^TestReleaseOfAllPlatforms$$|^TestGoInstall$$'

.PHONY: mutants
mutants: ## Build the service with planted faults, and check that a test catches each of them.
	REQUIRE_INTEGRATION=1 LEADERBOARD_TEST_MUTANTS=1 go test -timeout 120m -v -run '^TestMutantsAreCaught$$' ./test/faults

.PHONY: vulnerabilities
vulnerabilities: ## Look for known vulnerabilities in the code that the binary calls. Needs a network.
	"$$(go -C tools tool -n govulncheck)" ./...

.PHONY: fuzz
fuzz: ## Run every fuzz test for FUZZTIME each (60s).
	./scripts/fuzz.sh $(or $(FUZZTIME),60s)

.PHONY: bench
bench: ## Run the benchmarks of the rank index and the store.
	go test -run '^$$' -bench . -benchmem ./cache/... ./storage/pebble/...

.PHONY: cluster-up
cluster-up: ## Start Cassandra, Kafka and Redis for tests, and print their addresses. UP=-secure: with TLS and passwords.
	go run ./test/cluster/cmd up -d $(UP)

.PHONY: cluster-down
cluster-down: ## Stop the servers that cluster-up started.
	go run ./test/cluster/cmd down
