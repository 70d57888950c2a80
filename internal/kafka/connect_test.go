package kafka_test

import (
	"cmp"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/certs"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/test/authority"
)

func startSecured(t *testing.T, ca *authority.Authority, opts ...kfake.Opt) []string {
	t.Helper()
	pair, err := ca.Issue("broker", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	config, err := ca.Server(pair)
	if err != nil {
		t.Fatal(err)
	}
	return fake(t, append(opts, kfake.TLS(config))...)
}

// Unlike real brokers, the fake brokers close the connection if credentials are wrong.
func TestConnectWithCredentials(t *testing.T) {
	ca, err := authority.New(t.TempDir(), "ca")
	if err != nil {
		t.Fatal(err)
	}
	other, err := authority.New(t.TempDir(), "other")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue("client")
	if err != nil {
		t.Fatal(err)
	}
	users := []kfake.Opt{
		kfake.EnableSASL(), kfake.Superuser("PLAIN", "ada", "plain"), kfake.Superuser("SCRAM-SHA-256", "ada", "scram256"), kfake.Superuser("SCRAM-SHA-512", "ada", "scram512"),
	}
	sasl, saslAndTLS, open := fake(t, users...), startSecured(t, ca, users...), fake(t)
	trusting, certified, untrusting := certs.Client{Setting: "kafka.tls", CA: ca.File}, certs.Client{Setting: "kafka.tls", CA: ca.File, Cert: pair.Cert, Key: pair.Key}, certs.Client{Setting: "kafka.tls", CA: other.File}
	tests := []struct {
		name     string
		brokers  []string
		options  kafka.Options
		tls      *certs.Client
		want     string // part of the error
		rejected bool
		timeout  time.Duration // of a TLS handshake; 0 means a minute
	}{
		{"PLAIN", sasl, kafka.Options{Mechanism: "PLAIN", Username: "ada", Password: "plain"}, nil, "", false, 0},
		{"SCRAM-SHA-256", sasl, kafka.Options{Mechanism: "SCRAM-SHA-256", Username: "ada", Password: "scram256"}, nil, "", false, 0},
		{"SCRAM-SHA-512", sasl, kafka.Options{Mechanism: "SCRAM-SHA-512", Username: "ada", Password: "scram512"}, nil, "", false, 0},
		{"TLS and SCRAM-SHA-512", saslAndTLS, kafka.Options{Mechanism: "SCRAM-SHA-512", Username: "ada", Password: "scram512"}, &certified, "", false, 0},
		{"no credentials are required", open, kafka.Options{}, nil, "", false, 0},
		{"wrong password, PLAIN", sasl, kafka.Options{Mechanism: "PLAIN", Username: "ada", Password: "wrong"}, nil, "may refuse kafka.username and kafka.password", false, 0},
		{"wrong password, SCRAM-SHA-256", sasl, kafka.Options{Mechanism: "SCRAM-SHA-256", Username: "ada", Password: "scram512"}, nil, "may refuse kafka.username and kafka.password", false, 0},
		{"unknown user, SCRAM-SHA-512", sasl, kafka.Options{Mechanism: "SCRAM-SHA-512", Username: "bob", Password: "scram512"}, nil, "may refuse kafka.username and kafka.password", false, 0},
		{"the credentials are missing", sasl, kafka.Options{}, nil, "may require kafka.username or kafka.tls.enabled", false, 0},
		{"the client has no TLS", saslAndTLS, kafka.Options{}, nil, "kafka.tls.enabled", false, 0},
		{"the client has no certificate", saslAndTLS, kafka.Options{Mechanism: "SCRAM-SHA-512", Username: "ada", Password: "scram512"}, &trusting, "set kafka.tls.cert and kafka.tls.key", true, 0},
		{"the client trusts another authority", saslAndTLS, kafka.Options{Mechanism: "SCRAM-SHA-512", Username: "ada", Password: "scram512"}, &untrusting, "kafka.tls.ca", true, 0},
		{"the broker has no TLS", open, kafka.Options{}, &certified, "see kafka.tls.enabled", false, time.Second / 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.tls != nil {
				h, err := tt.tls.Handshake()
				if err != nil {
					t.Fatal(err)
				}
				tt.options.Dial = h.Dial(cmp.Or(tt.timeout, time.Minute))
			}
			c := tt.options.Config("test")
			c.Metadata.Retry.Max = 0
			client, err := sarama.NewClient(tt.brokers, c)
			if err == nil {
				_ = client.Close()
			}
			err = kafka.ConnectError(tt.brokers, c, err)
			switch {
			case tt.want == "":
				if err != nil {
					t.Error(err)
				}
			case err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), tt.brokers[0]) || strings.Contains(err.Error(), "\n"):
				t.Errorf("error %q, want one line with %q and the broker's address", err, tt.want)
			case errors.Is(err, kafka.ErrRejected) != tt.rejected || !errors.Is(err, leaderboard.ErrUnavailable):
				t.Errorf("error %q, want ErrRejected: %t, and ErrUnavailable", err, tt.rejected)
			}
		})
	}
}
