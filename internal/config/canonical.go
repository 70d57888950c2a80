package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/open-leaderboard/leaderboard/internal/secret"
)

// Canonical contains the settings of the game's own store of results.
type Canonical struct {
	URL           string        `key:"url" unit:"http, https, grpc or grpcs URL" help:"Address of the game's own store. If set, consumers fetch the result of each message with fetch from URL/boards/BOARD/users/USER/matches/MATCH or, over gRPC, from the service CanonicalResultService."`
	Secret        secret.Text   `key:"secret" unit:"whsec_ and base64" help:"Key that signs the requests as in Standard Webhooks. To replace it, set the new and the old key, separated by a space. If empty, requests are not signed."`
	TLS           URLTLS        `key:"tls"`
	Timeout       time.Duration `key:"timeout" unit:"duration" help:"Timeout of a request, with connecting and reading the answer."`
	Concurrency   int           `key:"concurrency" unit:"requests" help:"Maximum concurrent requests of a consumer for each board, 1 to 1000."`
	RetryInterval time.Duration `key:"retry_interval" unit:"duration" help:"How long a fetch is parked in Kafka after its first attempts have failed, and between further attempts; at least 100ms."`
	NotFoundFor   time.Duration `key:"not_found_for" unit:"duration" help:"How long a result may be missing in the game's store before its fetch becomes a dead letter."`
	RetryFor      time.Duration `key:"retry_for" unit:"duration" help:"How long a fetch is retried after other failures before it becomes a dead letter, at most kafka.retention."`
}

// URLTLS contains the TLS settings of connections whose URL enables TLS.
type URLTLS struct {
	CA         string `key:"ca" unit:"path" help:"Authorities of the servers' certificates. If empty, the system's authorities."`
	Cert       string `key:"cert" unit:"path" help:"Client certificate chain, if servers require one."`
	Key        string `key:"key" unit:"path" help:"Private key of cert."`
	ServerName string `key:"server_name" unit:"name" help:"Name in the certificates. If empty, the dialed name or IP address."`
}

const minRetryInterval = 100 * time.Millisecond

func (c *Canonical) validate(v *validator, retention time.Duration) {
	v.checkRange("canonical.concurrency", c.Concurrency, 1, 1000)
	v.checkPositive("canonical.timeout", c.Timeout)
	v.checkPositive("canonical.not_found_for", c.NotFoundFor)
	v.checkPositive("canonical.retry_for", c.RetryFor)
	if c.RetryInterval < minRetryInterval {
		v.errorf("canonical.retry_interval", "%v is less than %v", c.RetryInterval, minRetryInterval)
	}
	if c.URL != "" && c.RetryFor > retention {
		v.errorf("canonical.retry_for", "%v is longer than kafka.retention, %v: Kafka would delete fetches before they are dead letters", c.RetryFor, retention)
	}
	if _, err := parseSecrets(c.Secret); err != nil {
		v.errorf("canonical.secret", "%v", err)
	}
	v.checkPair("canonical.tls", c.TLS.Cert, c.TLS.Key)
	v.checkAuthorities("canonical.tls.ca", c.TLS.CA)
	if c.URL == "" {
		if c.Secret != "" || c.TLS != (URLTLS{}) {
			v.errorf("canonical.url", "is empty; set it to the address of the game's store, or remove the other settings of canonical")
		}
		return
	}
	u, err := parseStore(c.URL)
	if err != nil {
		v.errorf("canonical.url", "%v", err)
	} else if c.TLS != (URLTLS{}) && !strings.HasSuffix(u.Scheme, "s") {
		v.errorf("canonical.tls", "is set, but canonical.url does not begin with https:// or grpcs://")
	}
}

// Address returns the URL, or nil if the game has no store.
func (c *Canonical) Address() *url.URL {
	if c.URL == "" {
		return nil
	}
	u, _ := parseStore(c.URL) // Validate has checked URL
	return u
}

// Keys returns the keys in Secret.
func (c *Canonical) Keys() [][]byte {
	keys, _ := parseSecrets(c.Secret) // Validate has checked Secret
	return keys
}

func parseStore(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil: // the text may contain a password
		return nil, errors.New("is not an address such as https://results.game.example/v1")
	case u.User != nil:
		return nil, errors.New("contains a user or a password: sign the requests with canonical.secret instead")
	case u.Hostname() == "":
		return nil, fmt.Errorf("%.200q is not an address such as https://results.game.example/v1", text)
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, fmt.Errorf("%.200q contains ? or #, which an address such as https://results.game.example/v1 does not", text)
	}
	switch u.Scheme {
	case "http", "https":
		return u, nil
	case "grpc", "grpcs":
		if _, _, err := net.SplitHostPort(u.Host); err != nil || u.Port() == "" || u.Path != "" {
			return nil, fmt.Errorf("%.200q is not of the form %s://host:port", text, u.Scheme)
		}
		return u, nil
	}
	return nil, fmt.Errorf("%.200q begins with none of http://, https://, grpc:// and grpcs://", text)
}

// parseSecrets returns the keys in secrets of Standard Webhooks, which spaces separate.
func parseSecrets(text secret.Text) ([][]byte, error) {
	const minBytes, maxBytes = 24, 64
	var keys [][]byte
	for _, s := range strings.Fields(string(text)) {
		encoded, ok := strings.CutPrefix(s, "whsec_")
		key, err := base64.StdEncoding.DecodeString(encoded)
		if !ok || err != nil || len(key) < minBytes || len(key) > maxBytes {
			return nil, fmt.Errorf("contains a key that is not whsec_ and %d to %d bytes in base64; create a key with: echo whsec_$(openssl rand -base64 32)", minBytes, maxBytes)
		}
		keys = append(keys, key)
	}
	return keys, nil
}
