// Package config contains every setting of a server in one struct, [Config]. It loads
// the values from defaults, a file, the environment and flags. The tags of a field
// define the key, the unit and the help of the setting. The names of the environment
// variable and of the flag follow from the key.
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

// Config contains every setting of a server. [Default] returns the defaults and [Load]
// the effective values. docs/configuration.md is generated from this struct. To add a
// setting, add a field with tags, and a default in [Default]. To add a group, add a
// field whose type is a struct of such fields.
type Config struct {
	Data         string      `key:"data" unit:"path" help:"Folder of the embedded store."`
	HTTP         string      `key:"http" unit:"host:port" help:"Listen address of REST and the web page, and of probes and metrics if admin is empty."`
	GRPC         string      `key:"grpc" unit:"host:port" help:"Listen address of gRPC."`
	Admin        string      `key:"admin" unit:"host:port" help:"Listen address of /metrics, /debug/pprof, /healthz and /readyz, without TLS or keys: let only operators reach it. If empty, http serves them, except /debug/pprof."`
	Insecure     bool        `key:"insecure" unit:"boolean" help:"Serve without keys: every caller may do everything. Requires loopback addresses in http, grpc and admin. Other servers reject the keys that such a server creates."`
	PublicRead   bool        `key:"public_read" unit:"boolean" help:"Allow callers without a key to read ranks, except on private boards."`
	Reflection   bool        `key:"grpc_reflection" unit:"boolean" help:"Describe the API to gRPC tools without a key, as /openapi.json does."`
	AdminKey     secret.Text `key:"admin_key" unit:"text" help:"Admin key, at least 16 characters of printable ASCII. Each start stores it under the id admin-key, in place of an earlier one."`
	FirstKeyFile string      `key:"first_key_file" unit:"path" help:"File for the admin key that a start creates, if standard output is no terminal. If empty, the file admin-key inside data."`

	TrustedProxies []string `key:"trusted_proxies" unit:"IP addresses or networks such as 10.0.0.0/8, comma-separated" help:"Proxies in front of the server. For calls through them, limits apply to the right-most other address in X-Forwarded-For. The server ignores the header of other callers."`
	Web            Web      `key:"web"`

	Roles     []string  `key:"roles" unit:"api or consumer, comma-separated" help:"Roles of a distributed server: api answers callers, consumer applies results from Kafka."`
	Region    string    `key:"region" unit:"letters, digits, - and _" help:"Name of this region, if there are several. The server also reads copies of the other regions' topics, such as eu.match-results."`
	Cassandra Cassandra `key:"cassandra"`
	Redis     Redis     `key:"redis"`
	Kafka     Kafka     `key:"kafka"`

	TLS    TLS    `key:"tls"`
	JWT    JWT    `key:"jwt"`
	Limits Limits `key:"limits"`
	Log    Log    `key:"log"`

	RequestTimeout time.Duration `key:"request_timeout" unit:"duration" help:"Maximum duration of a call, except calls that watch and calls that need the scope admin."`
	ReceiveTimeout time.Duration `key:"receive_timeout" unit:"duration" help:"How long a client may take to send a request. A client without a key may take 5s at most."`
	DrainTime      time.Duration `key:"drain_time" unit:"duration" help:"How long a stopping server continues to answer while /readyz is 503. A second signal stops the server at once."`
	ShutdownGrace  time.Duration `key:"shutdown_grace" unit:"duration" help:"How long a stopping server waits for calls before it cancels them."`
	SweepInterval  time.Duration `key:"sweep_interval" unit:"duration" help:"How often the server seals closed seasons, deletes those past their retention, and refills those that the rank index has lost."`
	CacheBytes     Bytes         `key:"cache_bytes" unit:"bytes, such as 256MiB" help:"Block cache of the embedded store, without the rank index: 1MiB to 1024GiB."`
	BackupEvery    time.Duration `key:"backup_every" unit:"duration" help:"How often the server backs up the embedded store and checks the copy, at least 1m. 0 is never."`
	BackupKeep     int           `key:"backup_keep" unit:"backups" help:"Scheduled backups to keep. The server deletes older scheduled ones once a new one is checked."`
	BackupDir      string        `key:"backup_dir" unit:"path" help:"Folder of the backups, best on the file system of data. If empty, the folder backups inside data."`
}

// TLS contains the TLS settings of the HTTP and gRPC listeners.
type TLS struct {
	Cert     string `key:"cert" unit:"path" help:"Certificate chain of the server. Together with tls.key it enables TLS for HTTP and gRPC."`
	Key      string `key:"key" unit:"path" help:"Private key of tls.cert."`
	ClientCA string `key:"client_ca" unit:"path" help:"Certificate authorities. If set, every client must present a certificate that one of them signed."`
}

// Log contains the settings of the log. The server writes the log to standard error.
type Log struct {
	Level  string `key:"level" unit:"debug, info, warn or error" help:"Lowest logged level."`
	Format string `key:"format" unit:"auto, text or json" help:"Format of the log: auto is text on a terminal and JSON elsewhere."`
	Calls  bool   `key:"calls" unit:"boolean" help:"Log calls without a fault of the server at level info, instead of debug."`
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
		ShutdownGrace:  15 * time.Second,
		SweepInterval:  time.Minute,
		CacheBytes:     256 << 20,
		BackupKeep:     7,
		Roles:          []string{RoleAPI, RoleConsumer},
		Cassandra:      Cassandra{Keyspace: "leaderboard", Connections: 4, ConnectTimeout: 5 * time.Second, Timeout: 12 * time.Second, Buckets: 64},
		Redis:          Redis{ConnectTimeout: 5 * time.Second, Timeout: 5 * time.Second, Prefix: "leaderboard:"},
		Kafka:          Kafka{Mechanism: "SCRAM-SHA-512", ConnectTimeout: 5 * time.Second, Timeout: 30 * time.Second, Retention: 14 * 24 * time.Hour, Group: "leaderboard", SessionTimeout: 10 * time.Second, ApplyWait: 2 * time.Second, Batch: 512},
		JWT:            JWT{Leeway: 30 * time.Second, Refresh: 10 * time.Minute},
		Limits:         Limits{PeerRate: 50, PeerBurst: 100, Connections: 20_000, Streams: 250, Watchers: 10_000, CallerWatchers: 1_000},
		Web:            Web{CacheControl: "no-store"},
		Log:            Log{Level: "info", Format: "auto"},
	}
}

// Validate returns all errors of c, joined. Each error begins with the key of the
// setting.
func (c *Config) Validate() error {
	v := validator{}
	c.validateFolders(&v)
	c.validateAddresses(&v)
	c.Web.validate(&v, c.Insecure)
	c.validateAdminKey(&v)
	v.pair("tls", c.TLS.Cert, c.TLS.Key)
	if c.TLS.ClientCA != "" && c.TLS.Cert == "" {
		v.errorf("tls.client_ca", "requires tls.cert and tls.key")
	}
	v.authorities("tls.client_ca", c.TLS.ClientCA)
	c.validateCluster(&v)
	c.JWT.validate(&v)
	c.Limits.validate(&v)
	v.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	v.oneOf("log.format", c.Log.Format, "auto", "text", "json")
	v.positive("request_timeout", c.RequestTimeout)
	v.positive("receive_timeout", c.ReceiveTimeout)
	v.positive("shutdown_grace", c.ShutdownGrace)
	if c.DrainTime < 0 {
		v.errorf("drain_time", "%v is less than 0", c.DrainTime)
	}
	v.positive("sweep_interval", c.SweepInterval)
	if c.CacheBytes < 1<<20 || c.CacheBytes > 1<<40 {
		v.errorf("cache_bytes", "%v is not between 1MiB and 1024GiB", c.CacheBytes)
	}
	c.validateBackups(&v)
	return v.err()
}

// validateFolders checks the folders of the embedded store.
func (c *Config) validateFolders(v *validator) {
	if c.Data == "" {
		v.errorf("data", "is empty; set it to a folder")
	}
	if c.Distributed() {
		return
	}
	v.folder("data", c.Data)
	v.folder("backup_dir", c.BackupDir)
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

// minBackupEvery limits the load of backups. It must be at least a second, because the
// names of backups contain the time in seconds.
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

// DefaultKeyFile is the default file name of the first admin key, inside the folder
// Data.
const DefaultKeyFile = "admin-key"

// DefaultBackups is the default name of the folder of backups, inside the folder Data.
const DefaultBackups = "backups"

// minAdminKeyBytes is the minimum length of an admin key that an operator chooses.
const minAdminKeyBytes = 16

// SlogLevel returns Level as a [slog.Level].
func (l Log) SlogLevel() slog.Level {
	var level slog.Level
	_ = level.UnmarshalText([]byte(l.Level)) // Validate has checked it
	return level
}

// validator collects errors about settings.
type validator struct{ errs []error }

// errorf adds an error about the setting with the given key.
func (v *validator) errorf(key, format string, args ...any) {
	v.errs = append(v.errs, fmt.Errorf("%s: "+format, append([]any{key}, args...)...))
}

func (v *validator) positive(key string, d time.Duration) {
	if d <= 0 {
		v.errorf(key, "%v is not positive", d)
	}
}

func (v *validator) oneOf(key, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		v.errorf(key, "%q is not one of %s", value, strings.Join(allowed, ", "))
	}
}

// between checks that n is at least low and at most high.
func (v *validator) between(key string, n, low, high int) {
	if n < low || n > high {
		v.errorf(key, "%d is not between %d and %d", n, low, high)
	}
}

// matches checks the form of a value.
func (v *validator) matches(key, value string, form *regexp.Regexp, description string) {
	if !form.MatchString(value) {
		v.errorf(key, "%q must be %s", value, description)
	}
}

// readable reports whether the file path can be read. Otherwise it adds an error. If path
// is empty, it returns false without an error.
func (v *validator) readable(key, path string) bool {
	if path == "" {
		return false
	}
	if _, err := os.ReadFile(path); err != nil {
		v.errorf(key, "%v", err)
		return false
	}
	return true
}

// pair checks the files of a certificate and its key. prefix is the group of the settings
// cert and key.
func (v *validator) pair(prefix, cert, key string) {
	if (cert == "") != (key == "") {
		v.errorf(prefix+".cert", "and %s.key must be set together, but one of them is empty", prefix)
	}
	certReadable, keyReadable := v.readable(prefix+".cert", cert), v.readable(prefix+".key", key)
	if !certReadable || !keyReadable {
		return
	}
	if _, err := certs.Pair(cert, key); err != nil {
		v.errorf(prefix+".cert", "%v", err)
	}
}

// authorities checks a file of certificate authorities.
func (v *validator) authorities(key, path string) {
	if !v.readable(key, path) {
		return
	}
	if _, err := certs.Pool(path); err != nil {
		v.errorf(key, "%v", err)
	}
}

// folder checks that path is a folder, or that it can become one, because no file is in
// its place or above it.
func (v *validator) folder(key, path string) {
	for path != "" {
		if info, err := os.Stat(path); err == nil {
			if !info.IsDir() {
				v.errorf(key, "%q is a file, and no folder", path)
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

// err returns the errors in a stable order.
func (v *validator) err() error {
	slices.SortFunc(v.errs, func(x, y error) int { return strings.Compare(x.Error(), y.Error()) })
	return errors.Join(v.errs...)
}
