// Package config contains every setting of a server in one struct, [Config], and loads it
// from defaults, a file, the environment and flags. The key of a setting determines its
// environment variable and flag.
package config

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/open-leaderboard/leaderboard/internal/certs"
	"github.com/open-leaderboard/leaderboard/internal/secret"
)

// Config contains every setting of a server. docs/configuration.md is generated from this
// struct. A new setting needs a field with tags, and a default in [Default].
type Config struct {
	Data         string      `key:"data" unit:"path" help:"Folder of the embedded store."`
	HTTP         string      `key:"http" unit:"host:port" help:"Listen address of REST and the web page."`
	GRPC         string      `key:"grpc" unit:"host:port" help:"Listen address of gRPC."`
	Admin        string      `key:"admin" unit:"host:port" help:"Listen address of /metrics, /debug/pprof, /healthz and /readyz, without TLS or keys: let only operators reach it. If empty, http serves them, without /debug/pprof."`
	Insecure     bool        `key:"insecure" unit:"boolean" help:"Serve without keys: every caller may do everything. All listeners must be at loopback addresses. Other servers reject keys that this server creates."`
	PublicRead   bool        `key:"public_read" unit:"boolean" help:"Let callers without a key read ranks, except on private boards."`
	Reflection   bool        `key:"grpc_reflection" unit:"boolean" help:"Describe the API to gRPC tools without a key, as /openapi.json does."`
	AdminKey     secret.Text `key:"admin_key" unit:"text" help:"Admin key, at least 16 characters of printable ASCII. Each start stores it under the id admin-key."`
	FirstKeyFile string      `key:"first_key_file" unit:"path" help:"File for the first admin key, if the server starts without a terminal. If empty, admin-key in data."`

	TrustedProxies []string `key:"trusted_proxies" unit:"addresses or networks such as 10.0.0.0/8, comma-separated" help:"Proxies in front of the server. For calls through them, limits apply to the right-most address in X-Forwarded-For that is not a proxy's. In other calls, this header is ignored."`
	Web            Web      `key:"web"`

	Roles     []string  `key:"roles" unit:"api or consumer, comma-separated" help:"Roles of a distributed server: api answers calls, consumer applies results."`
	Region    string    `key:"region" unit:"letters, digits, - and _" help:"Name of this region, if there are several."`
	Cassandra Cassandra `key:"cassandra"`
	Redis     Redis     `key:"redis"`
	Kafka     Kafka     `key:"kafka"`
	Canonical Canonical `key:"canonical"`

	TLS    TLS    `key:"tls"`
	JWT    JWT    `key:"jwt"`
	Limits Limits `key:"limits"`

	Profiles Profiles `key:"profiles"`

	Archive Archive `key:"archive"`

	Log Log `key:"log"`

	RequestTimeout time.Duration `key:"request_timeout" unit:"duration" help:"Maximum duration of a call that neither watches nor needs the scope admin."`
	ReceiveTimeout time.Duration `key:"receive_timeout" unit:"duration" help:"Maximum time to send a request; without a key, 5s at most."`
	StartTimeout   time.Duration `key:"start_timeout" unit:"duration" help:"How long a starting server retries while Cassandra or another server does not answer. Then it exits."`
	DrainTime      time.Duration `key:"drain_time" unit:"duration" help:"How long a stopping server continues to answer while /readyz is 503. A second signal stops it at once."`
	ShutdownGrace  time.Duration `key:"shutdown_grace" unit:"duration" help:"How long a stopping server waits for calls before it cancels them."`
	SweepInterval  time.Duration `key:"sweep_interval" unit:"duration" help:"How often the server seals closed seasons, deletes seasons past their retention, and refills seasons that the rank index has lost."`
	CacheBytes     Bytes         `key:"cache_bytes" unit:"bytes" help:"Block cache of the embedded store, beside the rank index: 1MiB to 1024GiB."`
	BackupEvery    time.Duration `key:"backup_every" unit:"duration" help:"How often to back up the embedded store, at least 1m. 0 is never."`
	BackupKeep     int           `key:"backup_keep" unit:"backups" help:"Scheduled backups to keep."`
	BackupDir      string        `key:"backup_dir" unit:"path" help:"Folder of the backups, best on the file system of data. If empty, the folder backups in data."`
}

// TLS contains the TLS settings of the HTTP and gRPC listeners.
type TLS struct {
	Cert     string `key:"cert" unit:"path" help:"Certificate chain of the server. With tls.key, it enables TLS for HTTP and gRPC."`
	Key      string `key:"key" unit:"path" help:"Private key of tls.cert."`
	ClientCA string `key:"client_ca" unit:"path" help:"If set, every client must present a certificate of these authorities."`
}

// Log contains the settings of the log on standard error.
type Log struct {
	Level  string `key:"level" unit:"debug, info, warn or error" help:"Lowest logged level."`
	Format string `key:"format" unit:"auto, text or json" help:"Format: auto is text on a terminal, JSON elsewhere."`
	Calls  bool   `key:"calls" unit:"boolean" help:"Log each call without a server fault at level info, not debug."`
}

// Default returns the default of every setting.
func Default() Config {
	return Config{
		Data:           "leaderboard-data",
		HTTP:           "127.0.0.1:8080",
		GRPC:           "127.0.0.1:50051",
		Reflection:     true,
		RequestTimeout: 10 * time.Second,
		ReceiveTimeout: 30 * time.Second,
		StartTimeout:   5 * time.Minute,
		ShutdownGrace:  15 * time.Second,
		SweepInterval:  time.Minute,
		CacheBytes:     256 << 20,
		BackupKeep:     7,
		Roles:          []string{RoleAPI, RoleConsumer},
		Cassandra:      Cassandra{Keyspace: "leaderboard", Connections: 4, ConnectTimeout: 5 * time.Second, Timeout: 12 * time.Second, Buckets: 64, CacheUsers: 100_000},
		Redis:          Redis{ConnectTimeout: 5 * time.Second, Timeout: 5 * time.Second, Shards: 1, Prefix: "leaderboard:"},
		Kafka:          Kafka{Mechanism: "SCRAM-SHA-512", ConnectTimeout: 5 * time.Second, Timeout: 30 * time.Second, Retention: 14 * 24 * time.Hour, Group: "leaderboard", SessionTimeout: 10 * time.Second, ApplyWait: 2 * time.Second, Batch: 512},
		Canonical:      Canonical{Timeout: 5 * time.Second, Concurrency: 16, RetryInterval: time.Minute, NotFoundFor: time.Hour, RetryFor: 72 * time.Hour},
		JWT:            JWT{Leeway: 30 * time.Second, Refresh: 10 * time.Minute},
		Limits:         Limits{PeerRate: 50, PeerBurst: 100, Connections: 20_000, Streams: 250, Watchers: 10_000, CallerWatchers: 1_000, AnonymousStreams: 1_000, PeerStreams: 100},
		Web:            Web{CacheControl: "no-store"},
		Archive:        Archive{Every: 10 * time.Minute},
		Log:            Log{Level: "info", Format: "auto"},
	}
}

// Validate returns all errors of c, joined. Each begins with the key of the setting.
func (c *Config) Validate() error {
	v := validator{}
	c.validateFolders(&v)
	c.validateAddresses(&v)
	c.Web.validate(&v, c.Insecure)
	c.validateAdminKey(&v)
	v.checkPair("tls", c.TLS.Cert, c.TLS.Key)
	if c.TLS.ClientCA != "" && c.TLS.Cert == "" {
		v.errorf("tls.client_ca", "requires tls.cert and tls.key")
	}
	v.checkAuthorities("tls.client_ca", c.TLS.ClientCA)
	c.validateCluster(&v)
	c.Canonical.validate(&v, c.Kafka.Retention)
	c.JWT.validate(&v)
	c.Limits.validate(&v)
	c.Profiles.validate(&v, &c.JWT)
	c.Archive.validate(&v)
	v.checkOneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	v.checkOneOf("log.format", c.Log.Format, "auto", "text", "json")
	v.checkPositive("request_timeout", c.RequestTimeout)
	v.checkPositive("receive_timeout", c.ReceiveTimeout)
	v.checkPositive("start_timeout", c.StartTimeout)
	v.checkPositive("shutdown_grace", c.ShutdownGrace)
	if c.DrainTime < 0 {
		v.errorf("drain_time", "%v is less than 0", c.DrainTime)
	}
	v.checkPositive("sweep_interval", c.SweepInterval)
	if c.CacheBytes < 1<<20 || c.CacheBytes > 1<<40 {
		v.errorf("cache_bytes", "%v is not between 1MiB and 1024GiB", c.CacheBytes)
	}
	c.validateBackups(&v)
	return v.err()
}

func (c *Config) validateFolders(v *validator) {
	if c.Data == "" {
		v.errorf("data", "is empty; set it to a folder")
	}
	if c.Distributed() {
		return
	}
	v.checkFolder("data", c.Data)
	v.checkFolder("backup_dir", c.BackupDir)
}

func (c *Config) validateAdminKey(v *validator) {
	key := strings.TrimSpace(string(c.AdminKey))
	if key != "" && len(key) < minAdminKeyBytes {
		v.errorf("admin_key", "is shorter than %d bytes and could be guessed; choose a longer key", minAdminKeyBytes)
	}
	if strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) {
		v.errorf("admin_key", "has characters other than printable ASCII, which clients cannot send; choose another key")
	}
}

// minBackupEvery must be at least a second, because the names of backups contain the time
// in seconds.
const minBackupEvery = time.Minute

func (c *Config) validateBackups(v *validator) {
	switch {
	case c.BackupEvery != 0 && c.BackupEvery < minBackupEvery:
		v.errorf("backup_every", "%v is neither 0 nor at least %v", c.BackupEvery, minBackupEvery)
	case c.BackupEvery != 0 && c.Distributed():
		v.errorf("backup_every", "is for the embedded store; take snapshots of Cassandra instead (nodetool snapshot)")
	}
	if c.BackupKeep < 1 {
		v.errorf("backup_keep", "%d is less than 1", c.BackupKeep)
	}
}

// BackupFolder returns the folder of the backups.
func (c *Config) BackupFolder() string {
	if c.BackupDir == "" {
		return filepath.Join(c.Data, DefaultBackups)
	}
	return c.BackupDir
}

// KeyFile returns the path of the file for the first admin key.
func (c *Config) KeyFile() string {
	if c.FirstKeyFile == "" {
		return filepath.Join(c.Data, DefaultKeyFile)
	}
	return c.FirstKeyFile
}

// DefaultKeyFile is the file of the first admin key, in Data.
const DefaultKeyFile = "admin-key"

// DefaultBackups is the folder of backups, in Data.
const DefaultBackups = "backups"

const minAdminKeyBytes = 16

// SlogLevel returns Level as a [slog.Level].
func (l Log) SlogLevel() slog.Level {
	var level slog.Level
	_ = level.UnmarshalText([]byte(l.Level)) // Validate has checked Level
	return level
}

type validator struct{ errs []error }

func (v *validator) errorf(key, format string, args ...any) {
	v.errs = append(v.errs, fmt.Errorf("%s: "+format, append([]any{key}, args...)...))
}

func (v *validator) checkPositive(key string, d time.Duration) {
	if d <= 0 {
		v.errorf(key, "%v is not positive", d)
	}
}

func (v *validator) checkOneOf(key, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		v.errorf(key, "%q is not one of %s", value, strings.Join(allowed, ", "))
	}
}

func (v *validator) checkRange(key string, n, low, high int) {
	if n < low || n > high {
		v.errorf(key, "%d is not between %d and %d", n, low, high)
	}
}

func (v *validator) checkForm(key, value string, form *regexp.Regexp, description string) {
	if !form.MatchString(value) {
		v.errorf(key, "%q must be %s", value, description)
	}
}

// checkReadable reports whether a file can be read. It adds an error for an unreadable file,
// but not for an empty path.
func (v *validator) checkReadable(key, path string) bool {
	if path == "" {
		return false
	}
	if _, err := os.ReadFile(path); err != nil {
		v.errorf(key, "%v", err)
		return false
	}
	return true
}

// checkPair checks the settings cert and key in the group prefix.
func (v *validator) checkPair(prefix, cert, key string) {
	if (cert == "") != (key == "") {
		v.errorf(prefix+".cert", "must be set together with %s.key, but one of them is empty", prefix)
	}
	certReadable, keyReadable := v.checkReadable(prefix+".cert", cert), v.checkReadable(prefix+".key", key)
	if !certReadable || !keyReadable {
		return
	}
	if _, err := certs.Pair(cert, key); err != nil {
		v.errorf(prefix+".cert", "%v", err)
	}
}

func (v *validator) checkAuthorities(key, path string) {
	if !v.checkReadable(key, path) {
		return
	}
	if _, err := certs.Pool(path); err != nil {
		v.errorf(key, "%v", err)
	}
}

// checkFolder checks that path is a folder or can become one: neither path nor one of its
// parents is a file.
func (v *validator) checkFolder(key, path string) {
	for path != "" {
		if info, err := os.Stat(path); err == nil {
			if !info.IsDir() {
				v.errorf(key, "%q is a file, not a folder", path)
			}
			return
		}
		parent := filepath.Dir(path)
		if parent == path {
			return
		}
		path = parent
	}
}

func (v *validator) err() error {
	slices.SortFunc(v.errs, func(x, y error) int { return strings.Compare(x.Error(), y.Error()) })
	return errors.Join(v.errs...)
}
