package main

import (
	"context"
	"errors"
	"net"

	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/certs"
	"github.com/open-leaderboard/leaderboard/internal/config"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/storage/cql"
)

// handshake returns the function that begins TLS, or nil if t does not enable TLS. Errors name
// the settings in t with their prefix setting, such as redis.tls.
func handshake(setting string, t *config.ClientTLS) (certs.Handshake, error) {
	if !t.Enabled {
		return nil, nil
	}
	return certs.Client{Setting: setting, CA: t.CA, Cert: t.Cert, Key: t.Key, ServerName: t.ServerName}.Handshake()
}

func cqlOptions(c *config.Cassandra) (cql.Options, error) {
	h, err := handshake("cassandra.tls", &c.TLS)
	return cql.Options{
		Hosts: c.Hosts, DataCenter: c.DataCenter, Rack: c.Rack, Keyspace: c.Keyspace,
		Username: c.Username, Password: string(c.Password), TLS: h,
		Connections: c.Connections, ConnectTimeout: c.ConnectTimeout, Timeout: c.Timeout,
		Buckets: c.Buckets, CacheUsers: c.CacheUsers,
	}, err
}

func redisOptions(c *config.Redis) (*goredis.UniversalOptions, error) {
	o := &goredis.UniversalOptions{
		Addrs: c.Addresses, MasterName: c.MasterName, ClientName: clientID,
		Username: c.Username, Password: string(c.Password),
		SentinelUsername: c.SentinelUsername, SentinelPassword: string(c.SentinelPassword),
		PoolSize: c.Connections, DialTimeout: c.ConnectTimeout, ReadTimeout: c.Timeout, WriteTimeout: c.Timeout,
	}
	h, err := handshake("redis.tls", &c.TLS)
	if h != nil {
		o.Dialer = h.Dial(c.ConnectTimeout)
	}
	return o, err
}

func kafkaOptions(c *config.Kafka) (kafka.Options, error) {
	o := kafka.Options{
		Mechanism: c.Mechanism, Username: c.Username, Password: string(c.Password),
		Rack: c.Rack, ConnectTimeout: c.ConnectTimeout, Timeout: c.Timeout,
	}
	h, err := handshake("kafka.tls", &c.TLS)
	if h != nil {
		o.Dial = h.Dial(c.ConnectTimeout)
	}
	return o, err
}

func topicsOf(c *config.Kafka) kafka.Topics { return kafka.Topics{Prefix: c.TopicPrefix} }

// warnOfPasswords logs a warning for each backend that gets a password over an unencrypted
// connection to another machine.
func (s *server) warnOfPasswords(ctx context.Context) {
	for _, group := range unencryptedPasswords(s.config) {
		s.log.WarnContext(ctx, "a password crosses the network unencrypted: enable TLS with the setting", "setting", group+".tls.enabled")
	}
}

// unencryptedPasswords returns the groups of settings with a password that crosses the network
// unencrypted.
func unencryptedPasswords(c *config.Config) (groups []string) {
	for _, b := range []struct {
		group     string
		addresses []string
		sent      bool // whether the password itself is sent; SCRAM sends only proofs
		encrypted bool
	}{
		{"cassandra", c.Cassandra.Hosts, c.Cassandra.Password != "", c.Cassandra.TLS.Enabled},
		{"redis", c.Redis.Addresses, c.Redis.Password != "" || c.Redis.SentinelPassword != "", c.Redis.TLS.Enabled},
		{"kafka", c.Kafka.Brokers, c.Kafka.Password != "" && c.Kafka.Mechanism == "PLAIN", c.Kafka.TLS.Enabled},
	} {
		if b.sent && !b.encrypted && !onLoopback(b.addresses) {
			groups = append(groups, b.group)
		}
	}
	return groups
}

// onLoopback reports whether all addresses, as host or host:port, are loopback addresses.
func onLoopback(addresses []string) bool {
	for _, address := range addresses {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			host = address
		}
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return false
		}
	}
	return true
}

// warnOfTopics logs a warning for each topic setting that could lose results. It retries until
// Kafka answers.
func (s *server) warnOfTopics(ctx context.Context) {
	c := &s.config.Kafka
	var risks []string
	err := kafka.Retry(ctx, func() (err error) {
		risks, err = kafka.Risks(c.Brokers, s.kafka.Config(clientID), kafka.TopicOptions{Topics: topicsOf(c), Retention: c.Retention})
		if err != nil && !errors.Is(err, leaderboard.ErrUnavailable) {
			s.log.WarnContext(ctx, "cannot check the topics", "err", err)
			return nil
		}
		return err
	}, nil)
	if err != nil {
		return
	}
	for _, risk := range risks {
		s.log.WarnContext(ctx, "Kafka may lose results", "risk", risk)
	}
}
