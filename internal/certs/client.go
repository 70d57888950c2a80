package certs

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"
)

// Client contains the TLS settings of connections to other servers.
type Client struct {
	// Setting is the prefix of the settings that errors name, such as "redis.tls".
	Setting string
	// Enabled is the setting that enables TLS. Empty means Setting + ".enabled".
	Enabled string
	// Protocols are the application protocols to negotiate (ALPN), such as "h2".
	Protocols []string
	// CA is the file of the accepted authorities. Empty means the system's
	// authorities.
	CA string
	// Cert and Key are the files of the client certificate, or empty.
	Cert, Key string
	// ServerName is the name that server certificates must have. Empty means the dialed
	// host name or IP address.
	ServerName string
}

// Handshake performs the TLS handshake with the server at addr (host:port). If the
// handshake fails, Handshake closes conn.
type Handshake func(ctx context.Context, conn net.Conn, addr string) (net.Conn, error)

// Dial returns a function that connects and performs the handshake, both within timeout.
func (h Handshake) Dial(timeout time.Duration) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return h(ctx, conn, addr)
	}
}

// Handshake returns a function that performs TLS handshakes, and reads changed files again.
func (c Client) Handshake() (Handshake, error) {
	pool := func() *x509.CertPool { return nil }
	if c.CA != "" {
		f, err := Pool(c.CA)
		if err != nil {
			return nil, fmt.Errorf("%s.ca: %w", c.Setting, err)
		}
		pool = f.Current
	}
	var pair *File[*tls.Certificate]
	if c.Cert != "" {
		var err error
		if pair, err = Pair(c.Cert, c.Key); err != nil {
			return nil, fmt.Errorf("%s.cert: %w", c.Setting, err)
		}
	}
	return func(ctx context.Context, conn net.Conn, addr string) (net.Conn, error) {
		config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool(), ServerName: c.ServerName, NextProtos: c.Protocols}
		if config.ServerName == "" {
			host, _, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, errors.Join(&tlsError{"TLS with " + addr + ": " + err.Error(), err}, conn.Close())
			}
			config.ServerName = host
		}
		if pair != nil {
			config.Certificates = []tls.Certificate{*pair.Current()}
		}
		t := tls.Client(conn, config)
		if err := t.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, c.withAdvice(addr, err)
		}
		return &clientConn{Conn: t, withAdvice: func(err error) error { return c.withAdvice(addr, err) }}, nil
	}, nil
}

func (c Client) withAdvice(addr string, err error) error {
	wrongName, otherAuthority := x509.HostnameError{}, x509.UnknownAuthorityError{}
	verification := (*tls.CertificateVerificationError)(nil)
	advice := ": perhaps the server does not use TLS at this address, see " + cmp.Or(c.Enabled, c.Setting+".enabled")
	switch {
	case errors.As(err, &wrongName):
		advice = ": correct the address, or set " + c.Setting + ".server_name to a name in the certificate"
	case errors.As(err, &otherAuthority):
		advice = ": set " + c.Setting + ".ca to the authority that signed the certificate"
	case errors.As(err, &verification):
		advice = ""
	case isAlert(err) && c.Cert == "":
		advice = ": the server may require a certificate: set " + c.Setting + ".cert and " + c.Setting + ".key"
	case isAlert(err):
		advice = ": the server refuses the certificate of " + c.Setting + ".cert"
	}
	return &tlsError{"TLS with " + addr + ": " + err.Error() + advice, err}
}

type tlsError struct {
	text string
	err  error
}

func (e *tlsError) Error() string { return e.text }

// Unwrap returns a list, because errors.Unwrap ignores lists. A single error would make
// go-redis drop the advice: go-redis returns the result of errors.Unwrap, if it is not nil.
func (e *tlsError) Unwrap() []error { return []error{e.err} }

func (e *tlsError) Timeout() bool {
	var inner net.Error
	return errors.As(e.err, &inner) && inner.Timeout()
}

func (e *tlsError) Temporary() bool { return false }

func isAlert(err error) bool {
	op := (*net.OpError)(nil)
	return errors.As(err, &op) && op.Op == "remote error"
}

// clientConn adds advice to alerts of Read and Write. In TLS 1.3, a server may refuse the
// client's certificate after the client's handshake.
type clientConn struct {
	*tls.Conn
	withAdvice func(error) error
}

func (c *clientConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if isAlert(err) {
		err = c.withAdvice(err)
	}
	return n, err
}

func (c *clientConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if isAlert(err) {
		err = c.withAdvice(err)
	}
	return n, err
}
