// Package benchmark measures the distributed engine as a whole, on real servers:
//
//	REQUIRE_INTEGRATION=1 go test ./test/benchmark -run '^$' -bench . -benchtime 1x
//
// Its figures are in docs/benchmarks.md.
package benchmark
