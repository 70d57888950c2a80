package pipeline

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/open-leaderboard/leaderboard/test/authority"
	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

// Kafka, Cassandra and Redis require TLS, a client certificate and a password. A process with a
// wrong credential exits with one line that names the server and the setting.
func TestSecuredBackEnds(t *testing.T) {
	needs.Slow(t, "secured")
	secrets, err := cluster.NewSecrets(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d := startSecured(t, secrets)
	node := d.Serve(t, "--kafka-rack=rack1", "--cassandra-rack=rack1")
	board := node.Board(t, "secured", map[string]any{"order": "HIGHER_FIRST", "policy": "SUM", "season": map[string]any{"schedule": "NONE"}})
	var got struct {
		Status string `json:"status"`
		Score  int64  `json:"new_score"`
		Rank   int64  `json:"rank"`
	}
	status, err := node.Call(t.Context(), http.MethodPost, "/v1/boards/"+board+"/scores", map[string]any{"user_id": "ada", "match_id": "m", "points": 7}, &got)
	if err != nil || status/100 != 2 || got.Status != "APPLIED" || got.Score != 7 || got.Rank != 1 {
		t.Errorf("submit: status %d, error %v, answer %s; want the status APPLIED, the score 7 and rank 1", status, err, show(got))
	}
	deployment.Eventually(t, func(context.Context) error {
		log, err := node.Log()
		if n := strings.Count(log, `"Kafka may lose results"`); err == nil && n != 3 {
			return fmt.Errorf("the log has %d warnings that Kafka may lose results, want 3: each topic has one replica", n)
		}
		return err
	})
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256"} { // the node uses SCRAM-SHA-512
		d.Run(t, "topics", "--config", d.Config, "--kafka-mechanism="+mechanism, "--replication-factor=1", "--force")
	}
	checkRejected(t, d)
	runOperations(t, d, "--no-auth-warning", "--user", secrets.Username, "--pass", secrets.Password, "--tls", "--cacert", secrets.CA, "--cert", secrets.Cert, "--key", secrets.Key)
}

func startSecured(t *testing.T, secrets *cluster.Secrets) *deployment.Deployment {
	t.Helper()
	needs.Servers(t)
	var cassandra, kafka, redis *cluster.Cluster
	var start errgroup.Group
	for _, server := range []struct {
		cluster **cluster.Cluster
		start   func(context.Context) (*cluster.Cluster, error)
	}{
		{&cassandra, func(ctx context.Context) (*cluster.Cluster, error) {
			return cluster.StartCassandra(ctx, cluster.CassandraConfig{Secrets: secrets, Logf: t.Logf})
		}},
		{&kafka, func(ctx context.Context) (*cluster.Cluster, error) {
			return cluster.StartKafka(ctx, cluster.KafkaConfig{Secrets: secrets, Logf: t.Logf})
		}},
		{&redis, func(ctx context.Context) (*cluster.Cluster, error) {
			return cluster.StartRedis(ctx, cluster.RedisConfig{Secrets: secrets})
		}},
	} {
		start.Go(func() (err error) {
			*server.cluster, err = server.start(t.Context())
			return err
		})
	}
	err := start.Wait()
	for _, c := range []*cluster.Cluster{cassandra, kafka, redis} {
		if c != nil {
			t.Cleanup(func() {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return deployment.New(t, deployment.Options{
		Cassandra: cassandra.Addrs(), Kafka: kafka.Addrs(), Redis: redis.Addrs(), Fresh: true, Secrets: secrets,
	})
}

func checkRejected(t *testing.T, d *deployment.Deployment) {
	t.Helper()
	other, err := authority.New(t.TempDir(), "other")
	if err != nil {
		t.Fatal(err)
	}
	untrusted, err := other.Issue("stranger")
	if err != nil {
		t.Fatal(err)
	}
	servers := map[string][]string{"cassandra": d.Cassandra, "redis": d.Redis, "kafka": d.Kafka}
	for group, addrs := range servers {
		env := "LEADERBOARD_" + strings.ToUpper(group)
		for _, tt := range []struct {
			name      string
			variables []string
			want      string
		}{
			{"password", []string{env + "_PASSWORD=wrong"}, "correct " + group + ".username and " + group + ".password"},
			{"user", []string{env + "_USERNAME=nobody"}, "correct " + group + ".username and " + group + ".password"},
			{"authority", []string{env + "_TLS_CA=" + other.File}, group + ".tls.ca"},
			{"server name", []string{env + "_TLS_SERVER_NAME=db.example"}, group + ".tls.server_name"},
			{"client certificate", []string{env + "_TLS_CERT=" + untrusted.Cert, env + "_TLS_KEY=" + untrusted.Key}, "the server refuses the certificate of " + group + ".tls.cert"},
		} {
			t.Run(group+" "+tt.name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				cmd := d.Command(t, "serve", "--config", d.Config, "--http=127.0.0.1:0", "--grpc=127.0.0.1:0")
				cmd.Env = append(os.Environ(), tt.variables...)
				stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
				defer stop()
				out, err := cmd.CombinedOutput()
				var exit *exec.ExitError
				if !errors.As(err, &exit) || exit.ExitCode() != 1 {
					t.Errorf("leaderboard serve: %v, want exit code 1", err)
				}
				line := strings.TrimSpace(string(out))
				if strings.Contains(line, "\n") || !strings.Contains(line, tt.want) || !strings.Contains(line, addrs[0]) {
					t.Errorf("the output is %q, want one line with %q and %q", line, tt.want, addrs[0])
				}
				t.Log(line)
			})
		}
	}
}
