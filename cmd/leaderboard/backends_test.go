package main

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/open-leaderboard/leaderboard/api/canonical"
	"github.com/open-leaderboard/leaderboard/internal/config"
)

// A server logs the warnings that the command "topics" prints.
func TestTopicsRefuseRisks(t *testing.T) {
	brokers, err := kfake.NewCluster(kfake.NumBrokers(3))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(brokers.Close)
	addresses := strings.Join(brokers.ListenAddrs(), ",")
	topics := func(args ...string) commandResult {
		t.Helper()
		return command(t, "", nil, append([]string{"topics", "--cassandra-hosts=c", "--cassandra-data-center=dc1", "--redis-addresses=r:1", "--kafka-brokers=" + addresses}, args...)...)
	}
	for _, step := range []struct {
		name   string
		args   []string
		code   int
		stdout string
		stderr []string
	}{
		{"a topic with one replica is refused", []string{"--replication-factor=1"}, exitFailure, "", []string{`topic "match-results" would have 1 replica`, "accept it with --force"}},
		{"after the refusal, topics with three replicas are created", []string{"--replication-factor=3"}, exitOK, "created match-results, match-results.dlq, leaderboard-updates", nil},
		{"existing topics are accepted", nil, exitOK, "all topics exist", nil},
		{"a longer required retention is refused", []string{"--retention=2000h"}, exitFailure, "", []string{"keeps messages for 336h0m0s, less than the required 2000h0m0s"}},
		{"a longer required retention in the settings is refused", []string{"--kafka-retention=2000h"}, exitFailure, "", []string{"less than the required 2000h0m0s"}},
		{"a longer required retention is accepted with --force", []string{"--retention=2000h", "--force"}, exitOK, "all topics exist", []string{`warning: topic "match-results.dlq" keeps messages for 336h0m0s`}},
		{"a topic with one replica is created with --force", []string{"--kafka-topic-prefix=test-", "--replication-factor=1", "--force"}, exitOK, "created test-match-results", []string{`warning: topic "test-match-results" would have 1 replica`}},
	} {
		r := topics(step.args...)
		if r.code != step.code || !strings.HasPrefix(r.stdout, step.stdout) || step.stdout == "" && r.stdout != "" || len(step.stderr) == 0 && r.stderr != "" {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q; want exit code %d and stdout beginning with %q", step.name, r.code, r.stdout, r.stderr, step.code, step.stdout)
		}
		for _, want := range step.stderr {
			if !strings.Contains(r.stderr, want) {
				t.Errorf("%s: stderr is %q, want it to contain %q", step.name, r.stderr, want)
			}
		}
	}
	for _, tt := range []struct {
		prefix    string
		retention time.Duration
		warning   string
		want      int
	}{
		{"test-", 14 * 24 * time.Hour, "has 1 replica, and the loss of its broker loses results", 5},
		{"", 14 * 24 * time.Hour, "", 0},
		{"", 2000 * time.Hour, "keeps messages for 336h0m0s, less than the required 2000h0m0s", 5},
	} {
		var log output
		c := config.Default()
		c.Kafka.Brokers, c.Kafka.TopicPrefix, c.Kafka.Retention = brokers.ListenAddrs(), tt.prefix, tt.retention
		s := &server{config: &c, log: slog.New(slog.NewJSONHandler(&log, nil))}
		s.warnOfTopics(t.Context())
		if lines := strings.Count(log.String(), "\n"); lines != tt.want || tt.want > 0 && strings.Count(log.String(), tt.warning) != tt.want {
			t.Errorf("a server with the topic prefix %q and the retention %v logs %d lines, want %d, each with %q:\n%s", tt.prefix, tt.retention, lines, tt.want, tt.warning, log.String())
		}
	}
}

func TestPasswordsWithoutTLSCauseAWarning(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*config.Config)
		want   []string
	}{
		{"no passwords", func(*config.Config) {}, nil},
		{"passwords for all servers", func(c *config.Config) {
			c.Cassandra.Password, c.Redis.Password, c.Kafka.Password, c.Kafka.Mechanism = "p", "p", "p", "PLAIN"
		}, []string{"cassandra.tls.enabled", "redis.tls.enabled", "kafka.tls.enabled"}},
		{"SCRAM sends no password", func(c *config.Config) { c.Kafka.Password = "p" }, nil},
		{"a password for Sentinel", func(c *config.Config) { c.Redis.SentinelPassword = "p" }, []string{"redis.tls.enabled"}},
		{"a password over TLS", func(c *config.Config) { c.Redis.Password, c.Redis.TLS.Enabled = "p", true }, nil},
		{"a password for a server on this machine", func(c *config.Config) {
			c.Redis.Password, c.Redis.Addresses = "p", []string{"127.0.0.1:6379", "localhost:6379", "[::1]:6379"}
		}, nil},
	} {
		c := config.Default()
		c.Cassandra.Hosts, c.Redis.Addresses, c.Kafka.Brokers = []string{"db"}, []string{"127.0.0.1:1", "redis:1"}, []string{"10.0.0.1:9092"}
		tt.change(&c)
		var log output
		s := &server{config: &c, log: slog.New(slog.NewJSONHandler(&log, nil))}
		s.warnOfPasswords(t.Context())
		lines := slices.Collect(strings.Lines(log.String()))
		if len(lines) != len(tt.want) {
			t.Errorf("%s: logged %q, want one warning for each of %q", tt.name, lines, tt.want)
			continue
		}
		for i, want := range tt.want {
			if !strings.Contains(lines[i], want) {
				t.Errorf("%s: logged %q, want a warning with %q", tt.name, lines[i], want)
			}
		}
	}
}

func TestUnreadableCertificatesEndTheStart(t *testing.T) {
	r := command(t, "", nil, "serve", "--cassandra-hosts=127.0.0.1:1", "--cassandra-data-center=dc1", "--redis-addresses=127.0.0.1:1", "--kafka-brokers=127.0.0.1:1",
		"--http=127.0.0.1:0", "--grpc=127.0.0.1:0", "--kafka-tls-enabled", "--kafka-tls-ca=backends_test.go")
	r.mustFail(t, exitUsage, []string{"kafka.tls.ca (--kafka-tls-ca): certificate authorities: backends_test.go contains no PEM certificate"}, []string{"serve"})
}

func TestRacksReachTheDrivers(t *testing.T) {
	cassandra, err := cqlOptions(&config.Cassandra{Rack: "rack1"})
	if err != nil || cassandra.Rack != "rack1" {
		t.Errorf("the options of Cassandra have the rack %q, error %v; want rack1", cassandra.Rack, err)
	}
	kafka, err := kafkaOptions(&config.Kafka{Rack: "rack2"})
	if got := kafka.Config("test").RackID; err != nil || got != "rack2" {
		t.Errorf("the options of Kafka have the rack %q, error %v; want rack2", got, err)
	}
}

func TestSettingsReachTheGamesStore(t *testing.T) {
	var header http.Header
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header = r.Header
		w.WriteHeader(http.StatusNotFound)
	}))
	defer store.Close()
	c := config.Default()
	c.Canonical.URL, c.Canonical.Secret, c.Canonical.Concurrency = store.URL, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", 7
	s := &server{config: &c}
	game, err := s.openCanonical()
	if err != nil || game.Concurrency != 7 || game.RetryInterval != time.Minute || game.NotFoundFor != time.Hour || game.RetryFor != 72*time.Hour {
		t.Fatalf("the options of the game's store are %+v, error %v; want all settings", game, err)
	}
	_, err = game.Store.Fetch(t.Context(), canonical.Key{Board: "b", User: "u", Match: "m"})
	if e, ok := errors.AsType[*canonical.Error](err); !ok || e.Problem != canonical.NotFound || strings.Count(header.Get("webhook-signature"), "v1,") != 2 {
		t.Errorf("a fetch has the error %v, and the store gets the headers %v; want a problem %s and two signatures", err, header, canonical.NotFound)
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
	c.Canonical.URL = ""
	if game, err := s.openCanonical(); game != nil || err != nil {
		t.Errorf("without canonical.url, the game's store is %v, %v; want none", game, err)
	}
}

func TestConnectionSettingsReachTheDrivers(t *testing.T) {
	const connect, timeout = 2 * time.Second, 3 * time.Second
	cassandra, err := cqlOptions(&config.Cassandra{Connections: 7, ConnectTimeout: connect, Timeout: timeout, Username: "u", Password: "p"})
	if err != nil || cassandra.Connections != 7 || cassandra.ConnectTimeout != connect || cassandra.Timeout != timeout || cassandra.Username != "u" || cassandra.Password != "p" {
		t.Errorf("the options of Cassandra are %+v, error %v; want all settings", cassandra, err)
	}
	redis, err := redisOptions(&config.Redis{Connections: 8, ConnectTimeout: connect, Timeout: timeout, Username: "u", Password: "p", SentinelUsername: "su", SentinelPassword: "sp"})
	if err != nil || redis.PoolSize != 8 || redis.DialTimeout != connect || redis.ReadTimeout != timeout || redis.WriteTimeout != timeout ||
		redis.Username != "u" || redis.Password != "p" || redis.SentinelUsername != "su" || redis.SentinelPassword != "sp" {
		t.Errorf("the options of Redis are %+v, error %v; want all settings", redis, err)
	}
	options, err := kafkaOptions(&config.Kafka{Mechanism: "PLAIN", ConnectTimeout: connect, Timeout: timeout, Username: "u", Password: "p"})
	net := options.Config("test").Net
	if err != nil || net.DialTimeout != connect || net.ReadTimeout != timeout || net.WriteTimeout != timeout || net.SASL.User != "u" || net.SASL.Password != "p" {
		t.Errorf("the options of Kafka are %+v, error %v; want all settings", net, err)
	}
}
