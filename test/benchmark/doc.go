// Package benchmark measures the whole distributed engine on real servers:
//
//	REQUIRE_INTEGRATION=1 go test ./test/benchmark -run '^$' -bench . -benchtime 1x
//
// docs/benchmarks.md has the results.
package benchmark
