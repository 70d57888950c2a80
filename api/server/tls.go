package server

import (
	"crypto/tls"
	"fmt"

	"github.com/open-leaderboard/leaderboard/internal/certs"
)

// TLS names the files of a server's certificate. The zero value means no TLS. The server reads a
// file again when the file changes.
type TLS struct {
	CertFile string // PEM, with intermediates
	KeyFile  string // PEM
	// ClientCAFile is a PEM file of certificate authorities. If it is set, every client must have a
	// certificate of one of these authorities (mTLS), and still needs an API key.
	ClientCAFile string
}

func (t TLS) config() (*tls.Config, error) {
	if t == (TLS{}) {
		return nil, nil
	}
	pair, err := certs.Pair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("server: tls.cert: %w", err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair.Current(), nil }}
	if t.ClientCAFile == "" {
		return c, nil
	}
	pool, err := certs.Pool(t.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("server: tls.client_ca: %w", err)
	}
	c.ClientCAs, c.ClientAuth = pool.Current(), tls.RequireAndVerifyClientCert
	c.SessionTicketsDisabled = true // a resumed session would skip the check of the client's certificate
	withClientCAs := c.Clone()
	withClientCAs.NextProtos = []string{"h2", "http/1.1"} // net/http and gRPC add these protocols to c only
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		current := withClientCAs.Clone()
		current.ClientCAs = pool.Current()
		return current, nil
	}
	return c, nil
}
