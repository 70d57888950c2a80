package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"github.com/IBM/sarama"
	"golang.org/x/sync/errgroup"
)

// KafkaConfig describes a Kafka cluster.
type KafkaConfig struct {
	// Brokers is the number of brokers. Each broker is a controller too. Default 1. By default a
	// topic has a replica on each broker, and a write with acks=all needs all replicas but one.
	Brokers int
	// If Secrets is not nil, the brokers require TLS and a password. The SASL mechanism is PLAIN,
	// SCRAM-SHA-256 or SCRAM-SHA-512.
	Secrets *Secrets
	// Detours adds a listener to each broker, at [Server.Detour]. On this listener, broker i
	// advertises Detours[i], the address of a proxy. Secrets and Detours exclude each other.
	Detours []string
	// Quick starts the brokers sooner. In return, a broker serves fewer records per second.
	Quick bool
	// Logf reports slow steps, such as a download. Default: no reports.
	Logf func(format string, args ...any)
}

// checkKafkaReady writes to readyTopic.
const readyTopic = "cluster-ready"

// StartKafka starts a Kafka 4.1 cluster, and returns once a write to all replicas succeeds. The
// brokers do not create topics on first use. The caller must close the cluster.
func StartKafka(ctx context.Context, cfg KafkaConfig) (*Cluster, error) {
	logf := orQuiet(cfg.Logf)
	j, err := newJVM(ctx, "kafka", logf)
	if err != nil {
		return nil, err
	}
	err = j.prepare(ctx, logf, func(ctx context.Context, j *jvm) (*Cluster, error) {
		return startKafka(ctx, KafkaConfig{Brokers: 1}, j)
	})
	if err != nil {
		return nil, err
	}
	if cfg.Quick {
		j.quick = []string{quickJava}
	}
	cfg.Brokers = max(cfg.Brokers, 1)
	if cfg.Detours != nil && (len(cfg.Detours) != cfg.Brokers || cfg.Secrets != nil) {
		return nil, fmt.Errorf("cluster: start %d Kafka brokers with %d detours: each broker needs one detour, and brokers with detours cannot have secrets", cfg.Brokers, len(cfg.Detours))
	}
	return startKafka(ctx, cfg, j)
}

func startKafka(ctx context.Context, cfg KafkaConfig, j *jvm) (*Cluster, error) {
	ctx, cancel := withStartTimeout(ctx)
	defer cancel()
	n, secrets := cfg.Brokers, cfg.Secrets
	if n > blockSize/3 {
		return nil, fmt.Errorf("cluster: start %d Kafka brokers: at most %d are possible", n, blockSize/3)
	}
	const loopback = "127.0.0.1"
	c, err := newCluster("kafka", loopback)
	if err != nil {
		return nil, err
	}
	c.checkReady = func(_ context.Context, live []*Server) error { return checkKafkaReady(secrets, addrs(live), n) }
	var voters []string
	for i := range n {
		voters = append(voters, fmt.Sprintf("%d@%s", i+1, c.ports.addr(loopback, n+i)))
	}
	for i := range n {
		s, err := c.add(fmt.Sprintf("kafka-%d", i+1))
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		s.Addr = c.ports.addr(loopback, i)
		s.listens = []string{s.Addr, c.ports.addr(loopback, n+i)}
		if secrets != nil || cfg.Detours != nil {
			s.listens = append(s.listens, c.ports.addr(loopback, 2*n+i))
		}
		proxy := ""
		if cfg.Detours != nil {
			s.Detour, proxy = s.listens[2], cfg.Detours[i]
		}
		if err := kafkaConfigure(s, secrets, proxy, i+1, n, voters); err != nil {
			return nil, errors.Join(err, c.Close())
		}
		s.command = func([]*Server) (*exec.Cmd, error) {
			return j.command(kafkaFlags(s, "-Xms256m", "-Xmx384m"), "kafka.Kafka", s.kafkaProperties()), nil
		}
	}
	if err := formatKafka(ctx, c, secrets, j); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c.begin(ctx)
}

func formatKafka(ctx context.Context, c *Cluster, secrets *Secrets, j *jvm) error {
	id := clusterID()
	format := *j
	format.training = false // the archive of loaded classes must be the broker's, not the storage tool's
	var formats errgroup.Group
	for _, s := range c.Servers {
		formats.Go(func() error {
			args := []string{"kafka.tools.StorageTool", "format", "-t", id, "-c", s.kafkaProperties()}
			if secrets != nil {
				for _, mechanism := range []string{"SCRAM-SHA-256", "SCRAM-SHA-512"} {
					args = append(args, "--add-scram", fmt.Sprintf("%s=[name=%s,password=%s]", mechanism, secrets.Username, secrets.Password))
				}
			}
			cmd := format.command(kafkaFlags(s, "-Xmx128m", quickJava), args...)
			_, err := runTool(ctx, cmd)
			return err
		})
	}
	if err := formats.Wait(); err != nil {
		return fmt.Errorf("cluster: format Kafka storage: %w", err)
	}
	return nil
}

// clusterID returns a random id without a leading dash, which Kafka's tools would read as a flag.
func clusterID() string {
	var b [16]byte
	rand.Read(b[:])
	return "A" + base64.RawURLEncoding.EncodeToString(b[:])[1:]
}

var kafkaProperties = template.Must(template.ParseFS(files, "kafka/server.properties.tmpl"))

func (s *Server) kafkaProperties() string { return filepath.Join(s.dir, "server.properties") }

// proxy is the address that the broker's detour listener advertises, or empty.
func kafkaConfigure(s *Server, secrets *Secrets, proxy string, id, replicas int, voters []string) error {
	var properties bytes.Buffer
	internal := ""
	if secrets != nil {
		internal = s.listens[2]
	}
	err := kafkaProperties.Execute(&properties, struct {
		ID, Replicas, MinISR                     int
		Voters, Addr, Controller, Internal, Data string
		Detour, Proxy                            string
		Secrets                                  *Secrets
	}{
		id, replicas, max(replicas-1, 1),
		strings.Join(voters, ","), s.Addr, s.listens[1], internal, filepath.Join(s.dir, "data"), s.Detour, proxy, secrets,
	})
	if err != nil {
		return err
	}
	log4j, err := files.ReadFile("kafka/log4j2.properties")
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(s.kafkaProperties(), properties.Bytes(), 0o644),
		os.WriteFile(filepath.Join(s.dir, "log4j2.properties"), log4j, 0o644),
	)
}

func kafkaFlags(s *Server, extra ...string) []string {
	return append(extra, "-XX:+UseG1GC", "-XX:+ExitOnOutOfMemoryError", "-Djava.awt.headless=true",
		"-Djava.net.preferIPv4Stack=true",
		"-Dlog4j2.configurationFile=file:"+filepath.Join(s.dir, "log4j2.properties"))
}

// A write with acks=all must succeed, each broker must list all brokers, and readyTopic must have
// at least as many in-sync replicas as addrs has brokers.
func checkKafkaReady(secrets *Secrets, addrs []string, replicas int) error {
	if err := checkKafkaListed(secrets, addrs); err != nil {
		return err
	}
	cfg := kafkaClientConfig()
	if err := secrets.kafka(cfg); err != nil {
		return err
	}
	admin, err := sarama.NewClusterAdmin(addrs, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = admin.Close() }()
	err = admin.CreateTopic(readyTopic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: int16(replicas)}, false)
	if err != nil && !errors.Is(err, sarama.ErrTopicAlreadyExists) {
		return fmt.Errorf("create topic %s: %w", readyTopic, err)
	}
	topics, err := admin.DescribeTopics([]string{readyTopic})
	if err != nil {
		return err
	}
	if len(topics) != 1 || len(topics[0].Partitions) != 1 {
		return fmt.Errorf("topic %s is not in the metadata yet", readyTopic)
	}
	if isr := topics[0].Partitions[0].Isr; len(isr) < len(addrs) {
		return fmt.Errorf("in-sync replicas are %v, want at least %d", isr, len(addrs))
	}
	producer, err := sarama.NewSyncProducer(addrs, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = producer.Close() }()
	_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: readyTopic, Value: sarama.StringEncoder("ready")})
	return err
}

// checkKafkaListed compares numbers of brokers, not addresses: brokers in containers advertise
// other addresses.
func checkKafkaListed(secrets *Secrets, addrs []string) error {
	if err := dialAll(addrs); err != nil {
		return err
	}
	cfg := kafkaClientConfig()
	if err := secrets.kafka(cfg); err != nil {
		return err
	}
	for _, addr := range addrs {
		client, err := sarama.NewClient([]string{addr}, cfg)
		if err != nil {
			return fmt.Errorf("%s: %w", addr, err)
		}
		listed := len(client.Brokers())
		_ = client.Close()
		if listed < len(addrs) {
			return fmt.Errorf("%s lists %d brokers, want %d", addr, listed, len(addrs))
		}
	}
	return nil
}

func kafkaClientConfig() *sarama.Config {
	cfg := sarama.NewConfig()
	cfg.ClientID = "cluster-harness"
	cfg.Version = sarama.V2_8_0_0
	cfg.Metadata.Retry.Max = 0 // The function poll repeats failed attempts.
	cfg.Metadata.AllowAutoTopicCreation = false
	cfg.Net.DialTimeout, cfg.Net.ReadTimeout = time.Second, 5*time.Second
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Timeout = 5 * time.Second
	cfg.Producer.Return.Successes = true
	return cfg
}

func (s *Secrets) kafka(cfg *sarama.Config) (err error) {
	if s == nil {
		return nil
	}
	cfg.Net.SASL.Enable, cfg.Net.SASL.User, cfg.Net.SASL.Password = true, s.Username, s.Password
	cfg.Net.TLS.Enable = true
	cfg.Net.TLS.Config, err = s.TLS()
	return err
}
