// Package capacity computes the machines that a load needs, from measured costs. The benchmark
// BenchmarkCapacity in test/benchmark measures the costs.
package capacity

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Load is what a service must carry.
type Load struct {
	Users            float64 `json:"users"`              // in a season of a board
	ResultsPerSecond float64 `json:"results_per_second"` // at the busiest time
	ReadsPerSecond   float64 `json:"reads_per_second"`   // at the busiest time
	KeepDays         float64 `json:"keep_days"`          // for which results and final standings are kept
	SeasonDays       float64 `json:"season_days"`        // the length of a season, or 0 if seasons do not end
	Boards           float64 `json:"boards"`             // on which each result counts
	Divisions        float64 `json:"divisions"`          // further ladders of each board that contain each user
}

// Validate returns all faults of a load, with the names of the flags.
func (l *Load) Validate() error {
	var errs []error
	for _, v := range []struct {
		name       string
		value      float64
		least, top float64
	}{
		{"--users", l.Users, 1, 1e10},
		{"--results-per-second", l.ResultsPerSecond, 0.001, 1e6},
		{"--reads-per-second", l.ReadsPerSecond, 0, 1e7},
		{"--keep-days", l.KeepDays, 1, 36500},
		{"--season-days", l.SeasonDays, 0, 36500},
		{"--boards", l.Boards, 1, 100},
		{"--divisions", l.Divisions, 0, 8},
	} {
		if !(v.value >= v.least && v.value <= v.top) { // also NaN
			errs = append(errs, fmt.Errorf("%s %v is not from %v to %v", v.name, v.value, v.least, v.top))
		}
	}
	return errors.Join(errs...)
}

// Costs, for ids of 16 bytes and one replica: bytes of a user's first result and of each further result, bytes
// of a user in a division, and processor seconds. They are rounded figures of BenchmarkCapacity, except
// those with another source beside them. A warm pipeline takes 1.35 ms for each result (docs/benchmarks.md);
// its parts have the shares that BenchmarkCapacity finds: Cassandra 0.66, consumer 0.15, Kafka 0.14.
const (
	embeddedUserDisk     = 243 // docs/benchmarks.md, with 10 million users; 62 with 20,000
	embeddedResultDisk   = 40
	embeddedDivisionDisk = 127 // docs/benchmarks.md: the least of an entry
	embeddedUserMemory   = 140 // docs/benchmarks.md: 54 and the id, twice, because garbage is collected late
	embeddedSubmit       = 330e-6
	embeddedRead         = 100e-6

	cassandraUserDisk     = 210
	cassandraResultDisk   = 80
	cassandraDivisionDisk = 64 // storage/cql/README.md: a row of 25 million users
	cassandraSubmit       = 890e-6
	kafkaResultDisk       = 430 // with its update
	kafkaSubmit           = 190e-6
	redisUserMemory       = 95    // docs/benchmarks.md, with 100,000 users or more
	redisDivisionMemory   = 51    // TestMemoryOfAUser
	redisSubmit           = 80e-6 // docs/adr/010: a move
	redisRead             = 41e-6
	apiSubmit             = 570e-6
	apiRead               = 140e-6
	consumerSubmit        = 210e-6
)

// Choices that the measurements do not decide. Assumptions states them for people.
const (
	busy         = 0.5 // of the processors at the busiest time
	meanRate     = 1.0 / 3
	filled       = 0.5 // of a disk
	replicas     = 3   // of Cassandra and Kafka
	kafkaDays    = 14
	machineCores = 8
	machineDisk  = 2e12
	// The embedded engine can use a larger machine, because it cannot use a second one.
	largestMemory = 128e9
	largestCores  = 32
	largestDisk   = 8e12
	serverMemory  = 1e9 // of a process of the service without users
	jvmMemory     = 16e9
	brokerMemory  = 8e9
	redisMemory   = 32e9 // of the largest machine for a master
)

// Assumptions returns what a plan assumes, a sentence each.
func Assumptions() []string {
	return []string{
		"ids have 16 bytes, and results have no metadata",
		fmt.Sprintf("results and reads per second are those of the busiest time; the mean is a third of it, and processors are busy for %.0f %%", 100*busy),
		fmt.Sprintf("disks are filled to %.0f %%, so that compactions, backups and snapshots have space", 100*filled),
		fmt.Sprintf("Cassandra and Kafka keep %d copies, Redis 2; Kafka keeps results for %d days", replicas, kafkaDays),
		"Redis needs twice the memory of its users while a season is filled again, and its machine twice as much for snapshots",
		fmt.Sprintf("a machine has %d cores and %s of disk; the single machine of the embedded engine has at most %d cores, %s of memory and %s of disk", machineCores, Gigabytes(machineDisk), largestCores, Gigabytes(largestMemory), Gigabytes(largestDisk)),
		"costs per user, result and read were measured on two shared cores: measure them on your machines before you buy many",
	}
}

// Machines are equal machines of one kind.
type Machines struct {
	Engine string  `json:"engine"` // embedded or distributed
	Kind   string  `json:"kind"`   // such as Cassandra node
	Count  int     `json:"count"`
	Cores  int     `json:"cores"`        // of each
	Memory float64 `json:"memory_bytes"` // of each
	Disk   float64 `json:"disk_bytes"`   // of each
	Note   string  `json:"note"`         // for people; may be empty
}

// Plan returns the machines of each engine. If no single machine can carry the load, the embedded
// engine has the count 0 and a note. The caller must have validated l.
func Plan(l Load) []Machines {
	all := append([]Machines{embedded(&l)}, distributed(&l)...)
	for i := range all {
		all[i].Memory, all[i].Disk = math.Ceil(all[i].Memory), math.Ceil(all[i].Disk)
	}
	return all
}

func (l *Load) keep() float64 { return l.KeepDays * (24 * time.Hour).Seconds() }

// entries returns the entries on all boards, those of sealed seasons included.
func (l *Load) entries() float64 {
	seasons := 1.0
	if l.SeasonDays > 0 {
		seasons += math.Ceil(l.KeepDays / l.SeasonDays)
	}
	return l.Users * l.Boards * seasons
}

// results returns the stored results. Each entry has one or more.
func (l *Load) results() float64 {
	return max(l.ResultsPerSecond*meanRate*l.keep()*l.Boards, l.entries())
}

func (l *Load) disk(user, result, division float64) float64 {
	return (l.entries()*(user+l.Divisions*division) + l.results()*result) / filled
}

func embedded(l *Load) Machines {
	m := Machines{
		Engine: "embedded", Kind: "server", Count: 1,
		Cores:  cores(l.ResultsPerSecond*l.Boards*embeddedSubmit + l.ReadsPerSecond*embeddedRead),
		Memory: serverMemory + l.Users*l.Boards*(1+l.Divisions)*embeddedUserMemory,
		Disk:   l.disk(embeddedUserDisk, embeddedResultDisk, embeddedDivisionDisk),
	}
	if m.Cores > largestCores || m.Memory > largestMemory || m.Disk > largestDisk {
		m.Count, m.Note = 0, "more than one machine has: use the distributed engine"
	}
	return m
}

func distributed(l *Load) []Machines {
	applied := l.ResultsPerSecond * l.Boards
	group := func(kind string, seconds, least, memory, disk float64) Machines {
		n := max(least, math.Ceil(seconds/busy/machineCores), math.Ceil(disk/machineDisk))
		return Machines{"distributed", kind, int(n), cores(seconds / n), memory, disk / n, ""}
	}
	all := []Machines{
		group("Cassandra node", replicas*applied*cassandraSubmit, replicas, jvmMemory, replicas*l.disk(cassandraUserDisk, cassandraResultDisk, cassandraDivisionDisk)),
		group("Kafka broker", replicas*l.ResultsPerSecond*kafkaSubmit, replicas, brokerMemory,
			replicas*l.ResultsPerSecond*meanRate*min(l.keep(), kafkaDays*24*3600)*kafkaResultDisk/filled),
		redis(l, applied),
		group("API node", l.ResultsPerSecond*apiSubmit+l.ReadsPerSecond*apiRead, 2, serverMemory, 0),
		group("consumer", applied*consumerSubmit, 2, serverMemory, 0),
	}
	return all
}

// redis returns masters and replicas. One thread of a master does all its work.
func redis(l *Load, applied float64) Machines {
	const refill, snapshot = 2, 2
	memory := l.Users * l.Boards * (redisUserMemory + l.Divisions*redisDivisionMemory) * refill * snapshot
	threads := (applied*redisSubmit + l.ReadsPerSecond*redisRead) / busy
	masters := max(1, math.Ceil(threads), math.Ceil(memory/redisMemory))
	m := Machines{Engine: "distributed", Kind: "Redis server", Count: int(2 * masters), Cores: 2, Memory: 1e9 + memory/masters, Disk: memory / masters / filled}
	m.Note = fmt.Sprintf("%.0f of them replicas; maxmemory %s", masters, Gigabytes(m.Memory/snapshot))
	if masters > 1 {
		m.Note += fmt.Sprintf("; boards with shards: %.0f or more", masters)
	}
	return m
}

// cores returns the cores that are busy for the given share of the time, at least 2.
func cores(seconds float64) int { return int(max(2, math.Ceil(seconds/busy))) }

// Gigabytes writes bytes with two digits and a decimal unit, such as 2.4 GB.
func Gigabytes(bytes float64) string {
	unit, name := 1e9, "GB"
	if bytes >= 1e12 {
		unit, name = 1e12, "TB"
	} else if bytes < 1e9 {
		unit, name = 1e6, "MB"
	}
	n := bytes / unit
	if n >= 10 {
		return fmt.Sprintf("%.0f %s", math.Ceil(n), name)
	}
	return fmt.Sprintf("%.1f %s", math.Ceil(n*10)/10, name)
}
