package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/open-leaderboard/leaderboard/internal/cli"
	"github.com/open-leaderboard/leaderboard/internal/config"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/schema"
	"github.com/open-leaderboard/leaderboard/storage/cql"
)

// clusterConfig returns the settings for a command of the distributed engine. It returns a usage
// error if the settings name no servers.
func clusterConfig(app *cli.App, cmd *cobra.Command) (*config.Config, error) {
	c, err := loadConfig(app, cmd)
	if err != nil {
		return nil, err
	}
	if !c.Distributed() {
		return nil, cli.Usagef("no servers are configured; set --cassandra-hosts, --redis-addresses and --kafka-brokers, or the same settings in the environment or in a file")
	}
	return &c.Config, nil
}

// cassandraSettings are the flags for a connection to Cassandra, for help.
var cassandraSettings = []string{"config", "cassandra-hosts", "cassandra-data-center", "cassandra-keyspace", "cassandra-username", "cassandra-tls-", "cassandra-timeout"}

func schemaCommand(app *cli.App) *cobra.Command {
	return cli.Parent("schema", "Create, update and show the tables in Cassandra", "  leaderboard schema apply --config leaderboard.yaml",
		schemaApplyCommand(app), schemaStatusCommand(app))
}

func schemaApplyCommand(app *cli.App) *cobra.Command {
	var replicas map[string]int
	cmd := &cobra.Command{
		Use: "apply", Short: "Create or update the keyspace and its tables", Args: cli.Exactly(),
		Long: `Create the keyspace and its tables in Cassandra, or update them. The command may run
several times concurrently: one run does the work, and the others wait. An existing
keyspace keeps its replication; if --replicas differs from this replication, the command
fails and shows the statement that changes it. The command also has the other flags of
"leaderboard serve".`,
		Example: `  leaderboard schema apply --config leaderboard.yaml --replicas dc1=3
  leaderboard schema apply --config leaderboard.yaml --replicas us=3,eu=3`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := clusterConfig(app, cmd)
			if err != nil {
				return err
			}
			given := len(replicas) > 0
			if !given {
				replicas = map[string]int{c.Cassandra.DataCenter: 3}
			}
			o, err := cqlOptions(&c.Cassandra)
			if err != nil {
				return err
			}
			err = cql.ApplySchema(cmd.Context(), o, replicas, func(m schema.Migration) {
				app.Printf("applied %04d %s\n", m.Version, m.Name)
			})
			if err == nil && given {
				err = cql.CheckReplicas(cmd.Context(), o, replicas)
			}
			if err == nil {
				app.Println("the schema is up to date")
			}
			return err
		},
	}
	addSettings(cmd, cassandraSettings...)
	cmd.Flags().StringToIntVar(&replicas, "replicas", nil, "replicas in each data center, as `name=count`,… (default 3 in the local data center)")
	return cmd
}

func schemaStatusCommand(app *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "status", Short: "Show the migrations and when they were applied", Args: cli.Exactly(),
		Long: `Show the migrations and when they were applied. The command also has the other flags of
"leaderboard serve".`,
		Example: `  leaderboard schema status --config leaderboard.yaml`,
	}
	addSettings(cmd, cassandraSettings...)
	output := app.AddOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := output.Check(cmd); err != nil {
			return err
		}
		c, err := clusterConfig(app, cmd)
		if err != nil {
			return err
		}
		o, err := cqlOptions(&c.Cassandra)
		if err != nil {
			return err
		}
		all, err := cql.SchemaStatus(cmd.Context(), o)
		if err != nil {
			return err
		}
		return printMigrations(app, output, all)
	}
	return cmd
}

func printMigrations(app *cli.App, output *cli.Output, all []schema.Migration) error {
	type migration struct {
		Version   int    `json:"version"`
		Name      string `json:"name"`
		AppliedAt string `json:"applied_at"` // empty if it is not applied
	}
	migrations := []migration{}
	t := cli.NewTable(cli.Row{"version", "name", "applied"})
	for _, m := range all {
		shown, at := "not applied; run `leaderboard schema apply`", ""
		if !m.AppliedAt.IsZero() {
			at = m.AppliedAt.UTC().Format(time.RFC3339)
			shown = at
		}
		migrations = append(migrations, migration{m.Version, m.Name, at})
		t.AppendRow(cli.Row{m.Version, m.Name, shown})
	}
	return output.PrintValue(migrations, func() { cli.WriteTable(app.Stdout, t) })
}

func topicsCommand(app *cli.App) *cobra.Command {
	o := kafka.TopicOptions{}
	var force bool
	cmd := &cobra.Command{
		Use: "topics", Short: "Create missing topics in Kafka, and check existing ones", Args: cli.Exactly(),
		Long: `Create the topics match-results, match-results.dlq and leaderboard-updates if they are
missing, and check existing topics. The command refuses a topic that could lose results:
a topic with a single replica, with fewer replicas than --replication-factor, with
min.insync.replicas=1, with a cleanup.policy other than delete, or with a retention
shorter than --retention. It changes no existing topic.
The command also has the other flags of "leaderboard serve".`,
		Example: `  leaderboard topics --config leaderboard.yaml
  leaderboard topics --config leaderboard.yaml --partitions 48 --replication-factor 3`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := clusterConfig(app, cmd)
			if err != nil {
				return err
			}
			if !cmd.Flags().Changed("retention") {
				o.Retention = c.Kafka.Retention
			}
			if o.Partitions < 1 || o.ReplicationFactor < 1 || o.Retention <= 0 {
				return cli.Usagef("--partitions, --replication-factor and --retention must be positive")
			}
			return ensureTopics(cmd.Context(), app, &c.Kafka, o, force)
		},
	}
	addSettings(cmd, append(kafkaSettings, "kafka-retention")...)
	cmd.Flags().IntVar(&o.Partitions, "partitions", 48, "partitions of each topic; they cannot be added later, because users would move to other partitions")
	cmd.Flags().IntVar(&o.ReplicationFactor, "replication-factor", 3, "replicas of each topic")
	cmd.Flags().DurationVar(&o.Retention, "retention", 0, "how long Kafka keeps messages (default: the setting kafka.retention)")
	cmd.Flags().BoolVar(&force, "force", false, "accept settings with which Kafka could lose results, for example on a test system")
	return cmd
}

// ensureTopics checks the topics, and then creates missing topics. If a topic could lose results,
// ensureTopics returns an error and creates nothing. With force, it prints a warning instead.
func ensureTopics(ctx context.Context, app *cli.App, c *config.Kafka, o kafka.TopicOptions, force bool) error {
	connection, err := kafkaOptions(c)
	if err != nil {
		return err
	}
	client := connection.Config("leaderboard-topics")
	o.Topics = topicsOf(c)
	risks, err := kafka.Risks(c.Brokers, client, o)
	if err != nil {
		return err
	}
	if len(risks) > 0 && !force {
		return fmt.Errorf("%s\ncorrect this, or accept it with --force", strings.Join(risks, "\n"))
	}
	for _, risk := range risks {
		app.Notef("warning: %s\n", risk)
	}
	created, err := kafka.EnsureTopics(ctx, c.Brokers, client, o)
	switch {
	case err != nil:
		return err
	case len(created) == 0:
		app.Println("all topics exist")
	default:
		app.Printf("created %s\n", strings.Join(created, ", "))
	}
	return nil
}
