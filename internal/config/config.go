// Package config holds every setting of a server in one struct, [Config], and
// puts its values together from their defaults, a file, the environment and
// flags. Settings are named once, by the struct: a field's tags give its key,
// unit and meaning, and the names in the environment and among the flags follow
// from the key.
package config

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Config is every setting of a server. [Default] gives the defaults, [Load] the
// effective values, and docs/configuration.md, which is made from this struct,
// the whole list. To add a setting, add a field with its tags and its default;
// to add a group of them, a field whose type is a struct of such fields.
type Config struct {
	Data       string `key:"data" unit:"path" help:"Folder of the embedded store. It is made if it is not there."`
	HTTP       string `key:"http" unit:"host:port" help:"Where REST, the web page and the metrics are served. Port 0 takes a free one."`
	GRPC       string `key:"grpc" unit:"host:port" help:"Where gRPC is served. Port 0 takes a free one."`
	Insecure   bool   `key:"insecure" unit:"true or false" help:"Serve without keys: every caller may do everything. Refused unless http and grpc are loopback addresses."`
	PublicRead bool   `key:"public_read" unit:"true or false" help:"Let callers without a key read ranks. Submitting and administering still need one."`
	AdminKey   Secret `key:"admin_key" unit:"text" help:"The first admin key. If there is none, and the store holds no key, the first start makes one and prints it once."`

	Roles     []string  `key:"roles" unit:"api, consumer, a list" help:"What a distributed server does: answer callers, apply results from the log, or both. An embedded one does both."`
	Region    string    `key:"region" unit:"letters, digits, - and _" help:"The name of this region, if there are several, each with servers of its own. The results of the others come on topics of their names, a dot and match-results, as a mirror writes them; one of this name is left alone."`
	Cassandra Cassandra `key:"cassandra"`
	Redis     Redis     `key:"redis"`
	Kafka     Kafka     `key:"kafka"`

	TLS    TLS    `key:"tls"`
	JWT    JWT    `key:"jwt"`
	Limits Limits `key:"limits"`
	Log    Log    `key:"log"`

	RequestTimeout time.Duration `key:"request_timeout" unit:"duration" help:"The longest that a call may take. Watching, exports, verify and rebuild have no limit."`
	ShutdownGrace  time.Duration `key:"shutdown_grace" unit:"duration" help:"How long a stopping server waits for calls in flight before it ends them."`
	SweepInterval  time.Duration `key:"sweep_interval" unit:"duration" help:"How often seasons that are over are sealed, and those past their retention deleted."`
	CacheBytes     Bytes         `key:"cache_bytes" unit:"bytes, as 256MiB" help:"Memory for the embedded store's block cache. The rank index comes on top of it."`
	BackupDir      string        `key:"backup_dir" unit:"path" help:"Folder that backups are made in, on the same file system as data to be fast. Empty is the folder backups in data."`
}

// TLS secures both listeners.
type TLS struct {
	Cert     string `key:"cert" unit:"path" help:"Certificate chain of the server in PEM. With tls.key it turns TLS on for HTTP and gRPC."`
	Key      string `key:"key" unit:"path" help:"Private key of tls.cert in PEM."`
	ClientCA string `key:"client_ca" unit:"path" help:"Certificate authorities in PEM. If set, every client must show a certificate of one of them."`
}

// Log says what is logged, to standard error.
type Log struct {
	Level  string `key:"level" unit:"debug, info, warn or error" help:"The least severe messages that are logged."`
	Format string `key:"format" unit:"auto, text or json" help:"How messages are written: auto is text on a terminal and JSON elsewhere."`
}

// Default returns the settings that hold where nothing else is said.
func Default() Config {
	return Config{
		Data:           "leaderboard-data",
		HTTP:           "127.0.0.1:8080",
		GRPC:           "127.0.0.1:50051",
		RequestTimeout: 10 * time.Second,
		ShutdownGrace:  15 * time.Second,
		SweepInterval:  time.Minute,
		CacheBytes:     256 << 20,
		Roles:          []string{RoleAPI, RoleConsumer},
		Cassandra:      Cassandra{Keyspace: "leaderboard", Buckets: 64},
		Redis:          Redis{Prefix: "leaderboard:"},
		Kafka:          Kafka{Group: "leaderboard", SessionTimeout: 10 * time.Second, ApplyWait: 2 * time.Second, Batch: 512},
		JWT:            JWT{Leeway: 30 * time.Second, Refresh: 10 * time.Minute},
		Limits:         Limits{PeerRate: 50, PeerBurst: 100, Streams: 250, Watchers: 10_000},
		Log:            Log{Level: "info", Format: "auto"},
	}
}

// Validate returns every fault of c, joined, each with the setting's key.
func (c *Config) Validate() error {
	v := validator{}
	if c.Data == "" {
		v.fault("data", "is empty; name a folder")
	}
	for key, addr := range map[string]string{"http": c.HTTP, "grpc": c.GRPC} {
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			v.fault(key, "%q is not of the form host:port", addr)
			continue
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil {
			v.fault(key, "%q has no port 0 to 65535", addr)
		} else if c.HTTP == c.GRPC && n != 0 && key == "grpc" {
			v.fault(key, "%q is http's address too; give gRPC one of its own", addr)
		}
	}
	if c.AdminKey != "" && len(c.AdminKey) < MinAdminKeyBytes {
		v.fault("admin_key", "is shorter than %d bytes, and so could be guessed", MinAdminKeyBytes)
	}
	if (c.TLS.Cert == "") != (c.TLS.Key == "") {
		v.fault("tls.cert", "and tls.key go together, one of them is empty")
	}
	if c.TLS.ClientCA != "" && c.TLS.Cert == "" {
		v.fault("tls.client_ca", "needs tls.cert and tls.key")
	}
	for key, path := range map[string]string{"tls.cert": c.TLS.Cert, "tls.key": c.TLS.Key, "tls.client_ca": c.TLS.ClientCA} {
		v.readable(key, path)
	}
	c.validateCluster(&v)
	c.JWT.validate(&v)
	c.Limits.validate(&v)
	v.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	v.oneOf("log.format", c.Log.Format, "auto", "text", "json")
	v.positive("request_timeout", c.RequestTimeout)
	v.positive("shutdown_grace", c.ShutdownGrace)
	v.positive("sweep_interval", c.SweepInterval)
	if c.CacheBytes < 1<<20 || c.CacheBytes > math.MaxInt64/2 {
		v.fault("cache_bytes", "%v is not 1MiB or more", c.CacheBytes)
	}
	return v.err()
}

// MinAdminKeyBytes is the least length of a key chosen by an operator.
const MinAdminKeyBytes = 16

// SlogLevel is the level as package slog names it.
func (l Log) SlogLevel() slog.Level {
	var level slog.Level
	_ = level.UnmarshalText([]byte(l.Level)) // Validate has seen it
	return level
}

// validator gathers faults.
type validator struct{ errs []error }

func (v *validator) fault(key, format string, args ...any) {
	v.errs = append(v.errs, fmt.Errorf("%s: "+format, append([]any{key}, args...)...))
}

func (v *validator) positive(key string, d time.Duration) {
	if d <= 0 {
		v.fault(key, "%v is not positive", d)
	}
}

func (v *validator) oneOf(key, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		v.fault(key, "%q is none of %s", value, strings.Join(allowed, ", "))
	}
}

func (v *validator) readable(key, path string) {
	if path == "" {
		return
	}
	f, err := os.Open(path)
	if err != nil {
		v.fault(key, "%v", err)
		return
	}
	f.Close()
}

// err returns the faults in an order that does not change from run to run.
func (v *validator) err() error {
	slices.SortFunc(v.errs, func(x, y error) int { return strings.Compare(x.Error(), y.Error()) })
	return errors.Join(v.errs...)
}
