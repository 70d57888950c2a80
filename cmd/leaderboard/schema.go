package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/open-leaderboard/leaderboard/internal/config"
	"github.com/open-leaderboard/leaderboard/producer"
	"github.com/open-leaderboard/leaderboard/schema"
	"github.com/open-leaderboard/leaderboard/storage/cql"
)

// clusterConfig puts the settings together for a command that needs servers.
func (w *world) clusterConfig(cmd *cobra.Command) (*config.Config, error) {
	c, err := w.loadConfig(cmd)
	if err != nil {
		return nil, err
	}
	if !c.Distributed() {
		return nil, usagef("no servers are configured; name them with --cassandra-hosts, --redis-addresses and --kafka-brokers, in the environment or in a file")
	}
	return &c.Config, nil
}

func schemaCommand(w *world) *cobra.Command {
	var replicas map[string]int
	apply := &cobra.Command{
		Use: "apply", Short: "Make the keyspace and its tables, or bring them up to date", Args: exactly(),
		Long: `Make the keyspace and its tables in Cassandra, or bring them up to date. Several
may run at once: one works, the others wait. A keyspace that is there keeps its
replicas; if it has others than --replicas names, the statement that changes them
is shown. Takes the flags of leaderboard serve.`,
		Example: `  leaderboard schema apply --config leaderboard.yaml --replicas dc1=3
  leaderboard schema apply --config leaderboard.yaml --replicas us=3,eu=3`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := w.clusterConfig(cmd)
			if err != nil {
				return err
			}
			named := len(replicas) > 0
			if !named {
				replicas = map[string]int{c.Cassandra.DataCenter: 3}
			}
			err = cql.ApplySchema(cmd.Context(), cqlOptions(&c.Cassandra), replicas, func(m schema.Migration) {
				fmt.Fprintf(w.stdout, "applied %04d %s\n", m.Version, m.Name)
			})
			if err == nil && named {
				err = cql.CheckReplicas(cmd.Context(), cqlOptions(&c.Cassandra), replicas)
			}
			if err == nil {
				fmt.Fprintln(w.stdout, "the schema is up to date")
			}
			return err
		},
	}
	config.AddFlags(apply.Flags())
	apply.Flags().StringToIntVar(&replicas, "replicas", nil, "replicas in each data center, `name=count`,… (default 3 in the local one)")
	status := &cobra.Command{
		Use: "status", Short: "Show which migrations there are, and which are applied", Args: exactly(),
		Example: `  leaderboard schema status --config leaderboard.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := w.clusterConfig(cmd)
			if err != nil {
				return err
			}
			all, err := cql.SchemaStatus(cmd.Context(), cqlOptions(&c.Cassandra))
			if err != nil {
				return err
			}
			t := newTable(table.Row{"version", "name", "applied"})
			for _, m := range all {
				applied := "not yet: leaderboard schema apply"
				if !m.AppliedAt.IsZero() {
					applied = m.AppliedAt.Format(time.RFC3339)
				}
				t.AppendRow(table.Row{m.Version, m.Name, applied})
			}
			writeTable(w.stdout, t)
			return nil
		},
	}
	config.AddFlags(status.Flags())
	return parent("schema", "Make and show the tables in Cassandra", "  leaderboard schema apply --config leaderboard.yaml", apply, status)
}

func topicsCommand(w *world) *cobra.Command {
	o := producer.TopicOptions{}
	cmd := &cobra.Command{
		Use: "topics", Short: "Make the topics in Kafka that are missing, and check the others", Args: exactly(),
		Long: `Make the topics match-results, match-results.dlq and leaderboard-updates where they
are missing, and check the replicas of those that are there. Takes the flags of
leaderboard serve.`,
		Example: `  leaderboard topics --config leaderboard.yaml
  leaderboard topics --config leaderboard.yaml --partitions 48 --replication-factor 3`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := w.clusterConfig(cmd)
			if err != nil {
				return err
			}
			if o.Partitions < 1 || o.ReplicationFactor < 1 || o.Retention <= 0 {
				return usagef("--partitions, --replication-factor and --retention must be positive")
			}
			o.Topics = topicsOf(&c.Kafka)
			made, err := producer.EnsureTopics(cmd.Context(), c.Kafka.Brokers, producer.Config("leaderboard-topics"), o)
			switch {
			case err != nil:
				return err
			case len(made) == 0:
				fmt.Fprintln(w.stdout, "every topic is there")
			default:
				fmt.Fprintln(w.stdout, "made", strings.Join(made, ", "))
			}
			return nil
		},
	}
	config.AddFlags(cmd.Flags())
	cmd.Flags().IntVar(&o.Partitions, "partitions", 48, "partitions of each topic; more than are ever needed, since users move when the number grows")
	cmd.Flags().IntVar(&o.ReplicationFactor, "replication-factor", 3, "replicas of each topic")
	cmd.Flags().DurationVar(&o.Retention, "retention", 14*24*time.Hour, "how long messages are kept; more than the longest outage")
	return cmd
}
