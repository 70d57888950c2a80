package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/open-leaderboard/leaderboard/test/needs"
)

var _ = needs.PackageWithoutRace("one call follows another")

var update = flag.Bool("update", false, "write docs/configuration.md")

func load(t *testing.T, file string, environ []string, args ...string) (Effective, error) {
	t.Helper()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(fs)
	if file != "" {
		path := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append([]string{"--config", path}, args...)
	}
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return Load(fs, environ)
}

func TestFlagsOverrideEnvironmentOverridesFile(t *testing.T) {
	const file = "data: /file\nhttp: 127.0.0.1:1\ngrpc: 127.0.0.1:2\nlog: {level: warn}\n"
	got, err := load(t, file, []string{"LEADERBOARD_HTTP=127.0.0.1:3", "LEADERBOARD_GRPC=127.0.0.1:4", "LEADERBOARD_DATA=", "HOME=/"}, "--grpc", "127.0.0.1:5")
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Data, want.HTTP, want.GRPC, want.Log.Level = "/file", "127.0.0.1:3", "127.0.0.1:5", "warn"
	if diff := cmp.Diff(want, got.Config); diff != "" {
		t.Errorf("Load (-want +got):\n%s", diff)
	}
	for key, want := range map[string]string{"http": "LEADERBOARD_HTTP", "grpc": "--grpc", "log.format": "default"} {
		if got := got.Source(key); got != want {
			t.Errorf("Source(%s) = %q, want %q", key, got, want)
		}
	}
	if got := got.Source("data"); filepath.Base(got) != "config.yaml" {
		t.Errorf("Source(data) = %q, want the file, because an empty variable is ignored", got)
	}
}

// YAML would read most of these texts as numbers or as a date.
func TestFileKeepsTheTextOfValues(t *testing.T) {
	got, err := load(t, "data: 007\nadmin_key: 12345678901234567890\nbackup_dir: 2026-01-01\nfirst_key_file: 0x10\njwt: &j {leeway: 1m}\nlimits.key_rate: 1e3\ntrusted_proxies: []\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Data, want.AdminKey, want.BackupDir, want.FirstKeyFile, want.JWT.Leeway, want.Limits.KeyRate = "007", "12345678901234567890", "2026-01-01", "0x10", time.Minute, 1000
	if diff := cmp.Diff(want, got.Config); diff != "" {
		t.Errorf("Load (-want +got):\n%s", diff)
	}
}

func TestConfigFileFromEnvironment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte("log.level: error\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := load(t, "", []string{"LEADERBOARD_CONFIG=" + path})
	if err != nil || got.Log.Level != "error" {
		t.Errorf("Load = level %q, error %v; want level \"error\" and no error", got.Log.Level, err)
	}
}

func TestLoadReportsAllErrors(t *testing.T) {
	tests := []struct {
		name    string
		file    string
		environ []string
		args    []string
		want    []string
	}{
		{"an unknown key, with the nearest known key", "htttp: x\ntls: {crt: y}\nlogs: {level: info}\n", []string{"LEADERBOARD_GRCP=z"}, nil, []string{
			"htttp (", "unknown setting; did you mean http?", "tls.crt (", "did you mean tls.cert?", "logs.level (", "did you mean log.level?",
			"LEADERBOARD_GRCP (environment): unknown setting; did you mean LEADERBOARD_GRPC?"}},
		{"an unreadable value, with its source", "request_timeout: 5\ncache_bytes: lots\n", []string{"LEADERBOARD_INSECURE=maybe"}, []string{"--limits-key-rate=fast"}, []string{
			"request_timeout (", `"5" is not a duration such as`, `cache_bytes (`, `"lots" is not a size`,
			`insecure (LEADERBOARD_INSECURE): "maybe" is not true or false`, `limits.key_rate (--limits-key-rate): "fast" is not a number`}},
		{"a group in place of a value, and a value in place of a group", "http: {port: 1}\ntls: true\ndata:\nlog: {}\n", nil, nil, []string{
			"http (", "is a group, but must be a single value", "tls (", "unknown setting", "data (", "has no value"}},
		{"a setting that is given twice", "log.level: warn\nlog: {level: debug}\ndata: a\ndata: b\n", nil, nil, []string{
			"log.level (", "is given twice", "data ("}},
		{"lists with unusual elements", "trusted_proxies: [10.0.0.1, '10.0.0.2, 10.0.0.3']\nroles: [~]\nkafka: {brokers: [{a: b}]}\nhttp: [a]\n", nil, nil, []string{
			"trusted_proxies (", "roles (", "kafka.brokers (", "contains an element that is empty, has a comma, or is not text", "is a list, but must be a single value"}},
		{"a file without keys", "hello\n", nil, nil, []string{"config file ", "is not a list of settings"}},
		{"values out of range", "", []string{"LEADERBOARD_ADMIN_KEY=short"}, []string{
			"--grpc=8", "--http=h:99999", "--tls-cert=/no/such", "--log-level=loud", "--shutdown-grace=-1s", "--drain-time=-1s", "--backup-every=1s", "--backup-keep=0",
			"--limits-user-rate=-5", "--limits-user-burst=-1", "--jwt-public-key=/no/such", "--cache-bytes=5KiB"},
			[]string{
				`grpc (--grpc): "8" is not of the form host:port`,
				"admin_key (LEADERBOARD_ADMIN_KEY): is shorter than 16 bytes",
				"tls.cert (--tls-cert): must be set together with tls.key", "tls.cert (--tls-cert): open /no/such",
				`log.level (--log-level): "loud" is not one of debug, info, warn, error`,
				"shutdown_grace (--shutdown-grace): -1s is not positive", "drain_time (--drain-time): -1s is less than 0",
				"backup_every (--backup-every): 1s is neither 0 nor at least 1m0s", "backup_keep (--backup-keep): 0 is less than 1",
				"limits.user_burst (--limits-user-burst): -1 is less than 0", "limits.user_rate (--limits-user-rate): -5 is less than 0",
				`http (--http): "h:99999" has no port between 0 and 65535`, "jwt.algorithm: is empty; set it to the algorithm", "cache_bytes (--cache-bytes): 5KiB is not between 1MiB and 1024GiB"}},
		{"a token setting without the settings that it requires", "jwt: {algorithm: HS256, issuer: me}\n", nil, nil, []string{"requires exactly one of jwt.secret", "jwt.audience: is empty"}},
		{"invalid settings of Redis and Kafka", "cassandra: {hosts: h, data_center: d}\nredis: {addresses: h, prefix: \"{x}\"}\nkafka: {brokers: h, topic_prefix: eu., session_timeout: 10ms}\n", nil, nil, []string{
			`redis.prefix (`, `"{x}" is empty or contains braces`, `kafka.topic_prefix (`, `"eu." must be at most 150 letters, digits, - and _`,
			`kafka.session_timeout (`, `10ms is less than 1s`}},
		{"settings of a distributed server without addresses", "kafka: {batch: 0}\n", []string{"LEADERBOARD_CASSANDRA_HOSTS=", "LEADERBOARD_CASSANDRA_PASSWORD=p"}, []string{"--roles=api"}, []string{
			"cassandra.password (LEADERBOARD_CASSANDRA_PASSWORD): requires cassandra.hosts, redis.addresses and kafka.brokers",
			"roles (--roles): requires cassandra.hosts", "kafka.batch (", ": requires cassandra.hosts", ": 0 is not between 1 and 5000"}},
		{"invalid addresses of servers", "cassandra: {hosts: ['a:9043', b, 'c d', '::1'], data_center: d}\nredis: {addresses: [r, ':1', 'r:99999']}\nkafka: {brokers: ['k:0', 'k:9092']}\n", nil, nil, []string{
			`cassandra.hosts (`, `: "c d" is not of the form host or host:port`, ": has several ports; all nodes must have the same port",
			`redis.addresses (`, `: "r" is not of the form host:port`, `: ":1" is not`, `: "r:99999" is not`, `kafka.brokers (`, `: "k:0" is not`}},
		{"a store of the game without Kafka", "canonical: {url: 'https://game.example'}\n", nil, nil, []string{"canonical.url (", "requires cassandra.hosts, redis.addresses and kafka.brokers"}},
		{"invalid settings of the game's store", "canonical: {secret: whsec_c2hvcnQ=, concurrency: 0, timeout: 0s, retry_interval: 1ms, not_found_for: -1s, retry_for: 0s, tls: {ca: /no/such, key: /no/key}}\n", nil, nil, []string{
			"canonical.url: is empty", "canonical.secret (", "contains a key that is not whsec_ and 24 to 64 bytes in base64", "canonical.concurrency (", "0 is not between 1 and 1000", "canonical.timeout (", "canonical.retry_interval (", "1ms is less than 100ms",
			"canonical.not_found_for (", "canonical.retry_for (", "canonical.tls.ca (", "canonical.tls.cert: must be set together with canonical.tls.key"}},
		{"a store of the game with a password", "canonical: {url: 'https://user:hunter2@game.example'}\n", nil, nil, []string{"canonical.url (", "contains a user or a password"}},
		{"a store of the game with a query", "canonical: {url: 'https://game.example?x'}\n", nil, nil, []string{"contains ? or #"}},
		{"a store of the game with another scheme", "canonical: {url: 'ftp://game.example'}\n", nil, nil, []string{"begins with none of http://, https://, grpc:// and grpcs://"}},
		{"a store of the game without a host", "canonical: {url: 'https:///results'}\n", nil, nil, []string{"is not an address such as https://results.game.example/v1"}},
		{"a store of the game without a port", "canonical: {url: 'grpcs://game.example', tls: {server_name: x}}\n", nil, nil, []string{"is not of the form grpcs://host:port"}},
		{"a retention shorter than the retries", "canonical: {url: 'http://game.example', tls: {server_name: x}}\nkafka: {retention: 1h}\n", nil, nil, []string{"canonical.retry_for", "is longer than kafka.retention, 1h", "canonical.tls: is set, but"}},
		{"invalid names", "", nil, []string{"--cassandra-keyspace=Foo-Bar", "--kafka-group=a b", "--kafka-instance-id=a/b", "--kafka-topic-prefix=" + strings.Repeat("x", 151), "--region=" + strings.Repeat("x", 51)}, []string{
			`cassandra.keyspace (--cassandra-keyspace): "Foo-Bar" must be a lower-case letter`, `kafka.group (--kafka-group): "a b" must be 1 to 190`,
			`kafka.instance_id (--kafka-instance-id): "a/b" must be`, `kafka.topic_prefix (--kafka-topic-prefix)`, `must be at most 150`, `must be at most 50`}},
		{"invalid settings of tokens", "jwt: {issuer: me, jwks: 'http://a/b', refresh: 1s}\n", nil, nil, []string{
			"jwt.algorithm: is empty; set it", `"http://a/b" is neither an https URL nor the path of a file`, "1s is less than 10s"}},
		{"an algorithm that does not fit the key", "jwt: {algorithm: RS256, issuer: i, audience: a, secret: short}\n", nil, nil, []string{
			"RS256 does not fit the kind of key", "jwt.secret (", "is shorter than 32 bytes"}},
		{"an algorithm that requires a secret", "jwt: {algorithm: HS256, issuer: i, audience: a, jwks: config_test.go}\n", nil, nil, []string{"HS256 does not fit the kind of key"}},
		{"an unknown algorithm and a missing file", "jwt: {algorithm: ES256K, issuer: i, audience: a, jwks: /no/such}\n", nil, nil, []string{
			`"ES256K" is not one of HS256`, "jwt.jwks (", "open /no/such"}},
		{"files that are not certificates", "", nil, []string{"--tls-cert=config.go", "--tls-key=config.go", "--tls-client-ca=config.go", "--redis-tls-enabled", "--redis-tls-ca=config.go", "--kafka-tls-cert=.", "--kafka-tls-key=."}, []string{
			"tls.cert (--tls-cert): certificate config.go", "tls.client_ca (--tls-client-ca): certificate authorities: config.go contains no PEM certificate",
			"redis.tls.ca (--redis-tls-ca): certificate authorities: config.go", "kafka.tls.cert (--kafka-tls-cert): read .: is a directory"}},
		{"files in place of folders", "", nil, []string{"--data=config.go/x/y", "--backup-dir=config.go"}, []string{
			`data (--data): "config.go" is a file, not a folder`, `backup_dir (--backup-dir): "config.go" is a file`}},
		{"numbers that are not finite or too large, and a key that is not ASCII", "", []string{"LEADERBOARD_ADMIN_KEY=größer-als-sechzehn"}, []string{"--limits-key-rate=NaN", "--limits-peer-rate=+Inf", "--cache-bytes=5000000000GiB"}, []string{
			"limits.key_rate (--limits-key-rate): NaN is not a finite number", "+Inf is not a finite number", "5000000000GiB is not between 1MiB and 1024GiB",
			"admin_key (LEADERBOARD_ADMIN_KEY): has characters other than printable ASCII"}},
		{"an insecure server that other machines can reach", "", nil, []string{"--insecure", "--http=0.0.0.0:0", "--grpc=:0", "--admin=h:1"}, []string{
			`http (--http): "0.0.0.0:0" is not a loopback address, which --insecure requires`, `grpc (--grpc): ":0" is not`, `admin (--admin): "h:1" is not`}},
		{"invalid connection settings", `{cassandra: {hosts: h, data_center: d, username: u, connections: 0, timeout: 0s, tls: {ca: /no/such}},
			redis: {addresses: h, username: u, sentinel_password: p, tls: {enabled: true, cert: /no/cert}},
			kafka: {brokers: h, password: p, mechanism: GSSAPI, tls: {enabled: true, key: /no/key}, retention: -1h}}`, nil, nil, []string{
			"cassandra.username (", "must be set together with cassandra.password", "cassandra.connections (", "0 is not between 1 and 1000", "cassandra.timeout (", "0s is not positive",
			"cassandra.tls.enabled: is false, but other settings of cassandra.tls are set", "cassandra.tls.ca (", "/no/such",
			"redis.username (", "requires redis.password", "redis.sentinel_password (", "requires redis.master_name", "redis.tls.cert (", "must be set together with redis.tls.key", "/no/cert",
			"kafka.username: must be set together with kafka.password", "kafka.mechanism (", `"GSSAPI" is not one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512`, "kafka.tls.key (", "/no/key", "kafka.retention ("}},
		{"backups of a distributed server", "cassandra: {hosts: h, data_center: d}\nredis: {addresses: h}\nkafka: {brokers: h}\n", nil, []string{"--backup-every=1h"}, []string{
			"backup_every (--backup-every): is for the embedded store; take snapshots of Cassandra instead"}},
		{"one address for HTTP and gRPC", "", nil, []string{"--http=127.0.0.1:7", "--grpc=127.0.0.1:7"}, []string{"is also the address of http"}},
		{"invalid addresses and proxies", "", nil, []string{"--admin=127.0.0.1:50051", "--trusted-proxies=10.0.0.0/33,proxy,10.0.0.1"}, []string{
			"admin (--admin): \"127.0.0.1:50051\" is also the address of grpc", `"10.0.0.0/33" is neither an IP address nor a network`, `"proxy" is neither`}},
		{"invalid settings for browsers", "web: {cors_origins: ['*', 'https://a.example/', game.example], frame_ancestors: \"https://a.example; script-src *\", cache_control: \"a\\r\\nSet-Cookie: b\"}\n", nil, []string{"--insecure"}, []string{
			"* is not allowed with insecure", `"https://a.example/" is not an origin`, `"game.example" is not an origin`,
			`"https://a.example; script-src *" is neither self`, "is not a value of Cache-Control"}},
		{"unknown settings beside invalid ones", "htttp: x\nlog: {level: loud}\ntls: {crt: y, key: z}\n", []string{"LEADERBOARD_ADMIN_KEY=short"}, []string{"--sweep-interval=soon"}, []string{
			"did you mean http?", `"loud" is not one of`, "did you mean tls.cert?", "admin_key (LEADERBOARD_ADMIN_KEY): is shorter", `"soon" is not a duration`}},
		{"a file that is not YAML", "a: [\n", nil, nil, []string{"config file "}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(t, tt.file, tt.environ, tt.args...)
			if err == nil {
				t.Fatal("Load returned no error, want one")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error of Load lacks %q:\n%v", want, err)
				}
			}
		})
	}
	if _, err := load(t, "tls: {crt: y, key: z}\n", nil); err == nil || strings.Contains(err.Error(), "must be set together") {
		t.Errorf("Load with the misspelled setting tls.crt: error %v, want no error about the missing tls.cert", err)
	}
	if _, err := load(t, "", nil, "--config=/no/such/file"); err == nil || !strings.Contains(err.Error(), "config file") {
		t.Errorf("Load of a missing file = %v, want an error that contains \"config file\"", err)
	}
}

func TestUnusualValuesAreValid(t *testing.T) {
	_, err := load(t, "cassandra: {hosts: ['a:9042', b, '::1', '[::1]:9042', 10.0.0.1], data_center: d}\nredis: {addresses: ['[::1]:1', 'r.example:65535']}\nkafka: {brokers: 'k_1:1'}\n",
		[]string{"LEADERBOARD_ADMIN_KEY=0123 456789abcdef\n"}, "--region="+strings.Repeat("x", 50), "--kafka-topic-prefix="+strings.Repeat("x", 150), "--kafka-group="+strings.Repeat("x", 190),
		"--cassandra-keyspace="+strings.Repeat("x", 48), "--jwt-refresh=10s", "--cache-bytes=1024GiB", "--data="+filepath.Join(t.TempDir(), "new", "folder"))
	if err != nil {
		t.Errorf("Load: %v, want nil", err)
	}
}

func TestForeignVariablesAreIgnored(t *testing.T) {
	_, err := load(t, "", []string{
		"LEADERBOARD_SERVICE_HOST=10.0.0.1", "LEADERBOARD_PORT=tcp://10.0.0.1:8080", "LEADERBOARD_PORT_8080_TCP=tcp://10.0.0.1:8080",
		"LEADERBOARD_SERVER=h:1", "LEADERBOARD_KEY=k", "LEADERBOARD_CA=ca.pem", "LEADERBOARD_SOURCE_PASSWORD=p", "LEADERBOARD_TEST_DATA=d",
	})
	if err != nil {
		t.Errorf("Load with variables of other programs = %v, want no error", err)
	}
}

func TestSecretsAreHidden(t *testing.T) {
	const secret = "hunter2hunter2hunter2"
	c := Default()
	c.AdminKey, c.JWT.Secret = secret, secret
	var shown bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		fmt.Fprintf(&shown, verb+"\n", c)
		fmt.Fprintf(&shown, verb+"\n", c.AdminKey)
		fmt.Fprintf(&shown, verb+"\n", &c.AdminKey)
	}
	asJSON, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	shown.Write(asJSON)
	slog.New(slog.NewJSONHandler(&shown, nil)).Info("x", "config", c, "key", c.AdminKey)
	slog.New(slog.NewTextHandler(&shown, nil)).Info("x", "config", c, "key", c.AdminKey)
	for _, s := range c.Settings() {
		fmt.Fprintln(&shown, s.String())
	}
	if strings.Contains(shown.String(), secret) || strings.Contains(shown.String(), fmt.Sprintf("%x", secret)) {
		t.Errorf("the output contains the secret, want it hidden:\n%s", shown.String())
	}
	if !strings.Contains(shown.String(), "[hidden]") {
		t.Error("the output does not contain [hidden], want it in place of the secret")
	}
	if got := string(c.AdminKey); got != secret {
		t.Errorf("string(secret.Text) = %q, want the secret", got)
	}
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(fs)
	for _, name := range []string{"admin-key", "jwt-secret"} {
		if fs.Lookup(name) != nil {
			t.Errorf("the secret has the flag --%s, want none", name)
		}
	}
}

func TestBytes(t *testing.T) {
	for text, want := range map[string]Bytes{"0": 0, "7": 7, "64KiB": 64 << 10, "256MiB": 256 << 20, "3GiB": 3 << 30, "1025B": 1025} {
		var got Bytes
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("UnmarshalText(%q) = %d, %v; want %d", text, got, err, want)
		}
		var again Bytes
		if err := again.UnmarshalText([]byte(got.String())); err != nil || again != got {
			t.Errorf("UnmarshalText(%q) = %d, %v; want %d", got, again, err, int64(got))
		}
	}
	for _, text := range []string{"", "MiB", "-1", "1.5GiB", "1 GiB", "10MB", "9223372036854775807KiB"} {
		var b Bytes
		if err := b.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("UnmarshalText(%q) = %d, want an error", text, b)
		}
	}
}

func TestSettingsRoundTrip(t *testing.T) {
	defaults := Default()
	for _, s := range defaults.Settings() {
		if s.isSecret() || s.String() == "" {
			continue
		}
		got, err := load(t, "", []string{s.Env + "=" + s.String()})
		if err != nil {
			t.Errorf("Load with %s=%s: %v, want nil", s.Env, s, err)
		}
		if diff := cmp.Diff(defaults, got.Config); diff != "" {
			t.Errorf("%s=%s (-want +got):\n%s", s.Env, s, diff)
		}
		if got.Source(s.Key) != s.Env {
			t.Errorf("Source(%s) = %q, want %q", s.Key, got.Source(s.Key), s.Env)
		}
		if got, err = load(t, "", nil, "--"+s.Flag+"="+s.String()); err != nil || got.Source(s.Key) != "--"+s.Flag {
			t.Errorf("Load with --%s=%s: %v, source %q; want nil and the flag as the source", s.Flag, s, err, got.Source(s.Key))
		}
	}
}

func TestShortDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Minute: "1m", 24 * time.Hour: "24h", 90 * time.Minute: "1h30m", 1500 * time.Millisecond: "1.5s", 10 * time.Minute: "10m", 0: "0s",
	} {
		if got := shortDuration(d); got != want {
			t.Errorf("shortDuration(%d) = %q, want %q", d, got, want)
		}
	}
}

// Update docs/configuration.md with: go test ./internal/config -update
func TestDocumentationMatchesTheStruct(t *testing.T) {
	const path = "../../docs/configuration.md"
	want := documentation()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is out of date; run go test ./internal/config -update (-want +got):\n%s", path, diff)
	}
	defaults := Default()
	for _, s := range defaults.Settings() {
		if s.Key == "" || strings.HasSuffix(s.Key, ".") || s.Unit == "" || !strings.HasSuffix(s.Help, ".") {
			t.Errorf("%+v: every setting must have a key, a unit and a help that ends with a period", s)
		}
	}
}

func documentation() string {
	var b strings.Builder
	defaults := Default()
	all := defaults.Settings()
	named := all[slices.IndexFunc(all, func(s Setting) bool { return s.Key == "limits.key_rate" })]
	b.WriteString(strings.NewReplacer("~", "`", "{FLAG}", "--"+named.Flag, "{ENV}", named.Env).Replace(`# Configuration

<!-- Generated from internal/config by: go test ./internal/config -update -->

For operators: every setting of the server. The first source with a value decides:

1. a flag: ~leaderboard serve {FLAG} 100~. Secrets have no flag, because other users of the machine can see flags.
2. the environment: ~{ENV}=100~. An empty variable is ignored.
3. a YAML file, named by ~--config FILE~ or ~LEADERBOARD_CONFIG~. Keys with a dot may be nested:

~~~yaml
data: /var/lib/leaderboard
limits:
  key_rate: 100
log.level: warn
~~~

~leaderboard config~ takes the same flags, and prints every value with its source, without secrets. The server does not start with an unknown
key, an unknown variable that begins with LEADERBOARD_, or an invalid value.

## Settings

Each line has the key, the unit (omitted for durations and booleans), any default, and the meaning. Certificates and keys are
PEM files. The server reloads changed TLS files. ~limits~ apply per process. The IPv6 addresses of one /64 are one caller. A rate
of 0 is unlimited, a burst of 0 is what the rate allows in one second, and the other limits are at least 1.
`))
	var groups []string
	lines := map[string]string{}  // by group
	shared := map[string]string{} // settings of cassandra, by key without group
	for _, s := range all {
		key := "`" + s.Key + "`"
		group, rest, ok := strings.Cut(s.Key, ".")
		if !ok {
			group = "General"
		}
		about := s.Unit
		switch value := s.String(); {
		case s.Flag == "":
			about += "; secret"
		case value == "":
		case s.Unit == "boolean", s.Unit == "duration":
			about = "`" + value + "`"
		default:
			about += "; `" + value + "`"
		}
		text := fmt.Sprintf(" (%s): %s\n", about, s.Help)
		if strings.HasPrefix(rest, "tls.") && group != "canonical" || slices.Contains([]string{"username", "password", "connect_timeout"}, rest) {
			switch {
			case group == "cassandra":
				shared[rest] = text
				group, key = "cassandra, redis and kafka", "`*."+rest+"`"
			case shared[rest] == text:
				continue
			}
		}
		if !slices.Contains(groups, group) {
			groups = append(groups, group)
		}
		lines[group] += "- " + key + text
	}
	for _, group := range groups {
		fmt.Fprintf(&b, "\n### %s\n\n%s", group, lines[group])
	}
	b.WriteString(strings.ReplaceAll(`
## Other variables

The client commands list their variables under *Connection*: ~leaderboard top --help~. ~OTEL_*~ configure [traces](operations/watch.md#traces).
`, "~", "`"))
	return b.String()
}

func TestSettingsOfTheGamesStore(t *testing.T) {
	c := Default()
	if c.Canonical.Address() != nil || c.Canonical.Keys() != nil {
		t.Errorf("by default, the game's store has the address %v and the keys %q, want none", c.Canonical.Address(), c.Canonical.Keys())
	}
	c.Canonical.URL, c.Canonical.Secret = "grpcs://h:1", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw  whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	if got := c.Canonical.Address().String(); got != c.Canonical.URL {
		t.Errorf("Address() = %s, want %s", got, c.Canonical.URL)
	}
	if keys := c.Canonical.Keys(); len(keys) != 2 || len(keys[0]) != 24 || string(keys[1]) != strings.Repeat("\x00", 24) {
		t.Errorf("Keys() = %q, want the two keys of 24 bytes", keys)
	}
}

func TestConsumerGroupNamesTheRegion(t *testing.T) {
	servers := []string{"LEADERBOARD_CASSANDRA_HOSTS=a", "LEADERBOARD_CASSANDRA_DATA_CENTER=d", "LEADERBOARD_REDIS_ADDRESSES=b:1", "LEADERBOARD_KAFKA_BROKERS=c:1"}
	for _, tt := range []struct{ region, group, want string }{
		{"", "", "leaderboard"}, {"eu", "", "leaderboard-eu"}, {"us-east_1", "arena", "arena-us-east_1"},
	} {
		got, err := load(t, "", append([]string{"LEADERBOARD_REGION=" + tt.region, "LEADERBOARD_KAFKA_GROUP=" + tt.group}, servers...))
		if err != nil || got.ConsumerGroup() != tt.want {
			t.Errorf("region %q, group %q: ConsumerGroup = %q, error %v; want %q", tt.region, tt.group, got.ConsumerGroup(), err, tt.want)
		}
	}
	for _, region := range []string{"eu.west", "eu west", "é", "eu.match-results"} {
		if _, err := load(t, "", append([]string{"LEADERBOARD_REGION=" + region}, servers...)); err == nil || !strings.Contains(err.Error(), "region (LEADERBOARD_REGION)") {
			t.Errorf("region %q: %v, want an error about the region", region, err)
		}
	}
}
