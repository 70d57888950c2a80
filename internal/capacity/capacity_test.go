package capacity

import (
	"math"
	"strings"
	"testing"
)

func TestValidate(t *testing.T) {
	good := Load{Users: 1e6, ResultsPerSecond: 100, ReadsPerSecond: 1000, KeepDays: 90, Boards: 1}
	if err := good.Validate(); err != nil {
		t.Errorf("%+v: %v, want no error", good, err)
	}
	for name, change := range map[string]func(l *Load){
		"--users 0":                 func(l *Load) { l.Users = 0 },
		"--users NaN":               func(l *Load) { l.Users = math.NaN() },
		"--users 1e+11":             func(l *Load) { l.Users = 1e11 },
		"--results-per-second -1":   func(l *Load) { l.ResultsPerSecond = -1 },
		"--results-per-second +Inf": func(l *Load) { l.ResultsPerSecond = math.Inf(1) },
		"--reads-per-second -1":     func(l *Load) { l.ReadsPerSecond = -1 },
		"--keep-days 0":             func(l *Load) { l.KeepDays = 0 },
		"--season-days -7":          func(l *Load) { l.SeasonDays = -7 },
		"--boards 0":                func(l *Load) { l.Boards = 0 },
		"--divisions 9":             func(l *Load) { l.Divisions = 9 },
	} {
		l := good
		change(&l)
		if err := l.Validate(); err == nil || !strings.Contains(err.Error(), name+" is not from") {
			t.Errorf("%+v: error %v, want one with %s", l, err, name)
		}
	}
	if err := (&Load{}).Validate(); err == nil || strings.Count(err.Error(), "\n") != 3 {
		t.Errorf("the zero load: error %v, want four faults", err)
	}
}

func plan(t *testing.T, l Load) map[string]Machines {
	t.Helper()
	if err := l.Validate(); err != nil {
		t.Fatal(err)
	}
	all := map[string]Machines{}
	for _, m := range Plan(l) {
		all[m.Kind] = m
	}
	return all
}

// The expected figures are computed by hand from the costs.
func TestPlan(t *testing.T) {
	p := plan(t, Load{Users: 25e6, ResultsPerSecond: 900, ReadsPerSecond: 2000, KeepDays: 30, Boards: 1})
	// 900 / 3 × 30 days × 86,400 s are 777.6 million results.
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > want/1000 {
			t.Errorf("%s is %g, want %g", what, got, want)
		}
	}
	near("the embedded disk", p["server"].Disk, 2*(25e6*embeddedUserDisk+777.6e6*embeddedResultDisk))
	near("the embedded memory", p["server"].Memory, 1e9+25e6*embeddedUserMemory)
	near("Cassandra's disk of three nodes", 3*p["Cassandra node"].Disk, 3*2*(25e6*cassandraUserDisk+777.6e6*cassandraResultDisk))
	near("Kafka's disk of three brokers", 3*p["Kafka broker"].Disk, 3*2*300*14*86400*kafkaResultDisk)
	near("Redis's memory", p["Redis server"].Memory, 1e9+25e6*95*4)
	for kind, want := range map[string]int{"server": 1, "Cassandra node": 3, "Kafka broker": 3, "Redis server": 2, "API node": 2, "consumer": 2} {
		if got := p[kind].Count; got != want {
			t.Errorf("the plan has %d of the kind %s, want %d", got, kind, want)
		}
	}
}

// More of anything never needs less.
func TestPlanGrows(t *testing.T) {
	small := Load{Users: 1e6, ResultsPerSecond: 100, ReadsPerSecond: 100, KeepDays: 30, SeasonDays: 30, Boards: 1, Divisions: 1}
	for name, grow := range map[string]func(l *Load){
		"users": func(l *Load) { l.Users *= 1000 }, "results": func(l *Load) { l.ResultsPerSecond *= 1000 }, "reads": func(l *Load) { l.ReadsPerSecond *= 1000 },
		"days": func(l *Load) { l.KeepDays *= 100 }, "boards": func(l *Load) { l.Boards *= 50 }, "divisions": func(l *Load) { l.Divisions = 8 },
		"seasons": func(l *Load) { l.SeasonDays = 1 },
	} {
		large := small
		grow(&large)
		before, after := plan(t, small), plan(t, large)
		grown := false
		for kind, b := range before {
			a := after[kind]
			if kind == "server" && a.Count == 0 {
				grown = true
				continue
			}
			total := func(m Machines) [3]float64 {
				return [3]float64{float64(m.Count * m.Cores), float64(m.Count) * m.Memory, float64(m.Count) * m.Disk}
			}
			for i, was := range total(b) {
				is := total(a)[i]
				if is < was*0.999 {
					t.Errorf("with more %s, %s have %v, before %v, want no less", name, kind, a, b)
				}
				grown = grown || is > was
			}
		}
		if !grown {
			t.Errorf("more %s change nothing: %v", name, after)
		}
	}
	if server := plan(t, Load{Users: 1e10, ResultsPerSecond: 1, KeepDays: 1, Boards: 1})["server"]; server.Count != 0 || server.Note == "" {
		t.Errorf("the embedded engine for 10 billion users is %+v, want none, with a note", server)
	}
}

func TestGigabytes(t *testing.T) {
	for want, bytes := range map[string]float64{"2.4 GB": 2.375e9, "10 GB": 9.99e9 + 1e7, "1.5 TB": 1.45e12, "95 MB": 94.2e6, "0.0 MB": 0} {
		if got := Gigabytes(bytes); got != want {
			t.Errorf("Gigabytes(%g) = %q, want %q", bytes, got, want)
		}
	}
}
