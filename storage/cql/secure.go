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
)

// setSecurity sets TLS and the credentials of the connections.
func (o *Options) setSecurity(cfg *gocql.ClusterConfig) {
	cfg.Authenticator = unauthenticated{}
	if o.Username != "" {
		cfg.Authenticator = gocql.PasswordAuthenticator{Username: o.Username, Password: o.Password}
	}
	if o.TLS != nil {
		cfg.HostDialer = tlsDialer{o}
	}
}

// tlsDialer connects to nodes with TLS.
type tlsDialer struct{ o *Options }

func (d tlsDialer) DialHost(ctx context.Context, host *gocql.HostInfo) (*gocql.DialedHost, error) {
	ctx, cancel := context.WithTimeout(ctx, d.o.ConnectTimeout)
	defer cancel()
	conn, err := d.o.dial(ctx, "tcp", host.ConnectAddressAndPort())
	if err != nil {
		return nil, err
	}
	// The address contains the host name from Options.Hosts. For a node that the driver
	// has discovered, it contains the IP address instead.
	if conn, err = d.o.TLS(ctx, conn, host.HostnameAndPort()); err != nil {
		return nil, err
	}
	return &gocql.DialedHost{Conn: conn, DisableCoalesce: true}, nil // the driver coalesces by vectored writes, which TLS connections do not have
}

var errCredentialsRequired = errors.New("the node requires credentials")

// unauthenticated is the authenticator if no credentials are set. It returns
// errCredentialsRequired if a node asks for credentials.
type unauthenticated struct{}

func (unauthenticated) Challenge([]byte) ([]byte, gocql.Authenticator, error) {
	return nil, nil, errCredentialsRequired
}

func (unauthenticated) Success([]byte) error { return nil }

// connectErrors keeps the error of the last failed attempt to connect to a node, because
// CreateSession returns only the text of this error.
type connectErrors struct {
	mu   sync.Mutex
	addr string
	err  error
}

// ObserveConnect implements [gocql.ConnectObserver].
func (e *connectErrors) ObserveConnect(c gocql.ObservedConnect) {
	if c.Err == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.addr, e.err = c.Host.ConnectAddressAndPort(), c.Err
}

// last returns the address of the node and the error, or nil if every attempt succeeded.
func (e *connectErrors) last() (addr string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.addr, e.err
}

// checkRejection examines the error of a connection to the node at addr. If the node has
// refused the credentials or TLS, it returns an error that names the settings to correct.
// Otherwise it returns nil.
func (o *Options) checkRejection(addr string, err error) error {
	var request gocql.RequestError
	verification, op := (*tls.CertificateVerificationError)(nil), (*net.OpError)(nil)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &request) && request.Code() == gocql.ErrCodeCredentials:
		return fmt.Errorf("cql: node %s rejects user %q: correct cassandra.username and cassandra.password: %w", addr, o.Username, err)
	case errors.Is(err, errCredentialsRequired):
		return fmt.Errorf("cql: node %s: %w: set cassandra.username and cassandra.password", addr, err)
	case errors.As(err, &verification), errors.As(err, &op) && op.Op == "remote error":
		return fmt.Errorf("cql: node %s: %w", addr, err)
	case o.TLS == nil && (errors.Is(err, io.EOF) || strings.Contains(err.Error(), "EOF")):
		return fmt.Errorf("cql: node %s closes the connection, and may require cassandra.tls.enabled: %w", addr, err)
	case o.TLS != nil && strings.HasPrefix(err.Error(), "TLS with "):
		return fmt.Errorf("cql: node %s: %w", addr, err)
	}
	return nil
}
