package cql

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"

	"github.com/gocql/gocql"

	"github.com/open-leaderboard/leaderboard"
)

func (o *Options) setSecurity(cfg *gocql.ClusterConfig) {
	cfg.Authenticator = unauthenticated{}
	if o.Username != "" {
		cfg.Authenticator = gocql.PasswordAuthenticator{Username: o.Username, Password: o.Password}
	}
	if o.TLS != nil {
		cfg.HostDialer = tlsDialer{o}
	}
}

type tlsDialer struct{ o *Options }

func (d tlsDialer) DialHost(ctx context.Context, host *gocql.HostInfo) (*gocql.DialedHost, error) {
	ctx, cancel := context.WithTimeout(ctx, d.o.ConnectTimeout)
	defer cancel()
	conn, err := d.o.dial(ctx, "tcp", host.ConnectAddressAndPort())
	if err != nil {
		return nil, err
	}
	// HostnameAndPort has the host name from Options.Hosts. For a node that the driver has
	// discovered, it has the IP address.
	if conn, err = d.o.TLS(ctx, conn, host.HostnameAndPort()); err != nil {
		return nil, err
	}
	// To coalesce, the driver needs vectored writes, which TLS connections do not have.
	return &gocql.DialedHost{Conn: conn, DisableCoalesce: true}, nil
}

var errCredentialsRequired = errors.New("the node requires credentials")

type unauthenticated struct{}

func (unauthenticated) Challenge([]byte) ([]byte, gocql.Authenticator, error) {
	return nil, nil, errCredentialsRequired
}

func (unauthenticated) Success([]byte) error { return nil }

// connectErrors keeps the last connection error, because CreateSession returns only the
// text of the error.
type connectErrors struct {
	mu   sync.Mutex
	addr string
	err  error
}

func (e *connectErrors) ObserveConnect(c gocql.ObservedConnect) {
	if c.Err == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.addr, e.err = c.Host.ConnectAddressAndPort(), c.Err
}

func (e *connectErrors) last() (addr string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.addr, e.err
}

// If a node refused the credentials or TLS, checkRejection returns an error that names the
// settings to correct. Otherwise it returns nil.
func (o *Options) checkRejection(addr string, err error) error {
	var request gocql.RequestError
	verification, op := (*tls.CertificateVerificationError)(nil), (*net.OpError)(nil)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &request) && request.Code() == gocql.ErrCodeCredentials && strings.Contains(err.Error(), "Unable to perform authentication"):
		return nil // a cluster that has just started cannot read its users yet
	case errors.As(err, &request) && request.Code() == gocql.ErrCodeCredentials:
		return fmt.Errorf("cql: node %s rejects user %q: correct cassandra.username and cassandra.password: %w", addr, o.Username, err)
	case errors.Is(err, errCredentialsRequired):
		return fmt.Errorf("cql: node %s: %w: set cassandra.username and cassandra.password", addr, err)
	case errors.As(err, &verification), errors.As(err, &op) && op.Op == "remote error":
		return fmt.Errorf("cql: node %s: %w", addr, err)
	case o.TLS == nil && (errors.Is(err, io.EOF) || strings.Contains(err.Error(), "EOF")):
		return fmt.Errorf("cql: node %s closes the connection, and may require cassandra.tls.enabled: %w: %w", addr, leaderboard.ErrUnavailable, err)
	case o.TLS != nil && strings.HasPrefix(err.Error(), "TLS with "):
		return fmt.Errorf("cql: node %s: %w", addr, err)
	}
	return nil
}
