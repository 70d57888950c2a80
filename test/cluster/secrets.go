package cluster

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/open-leaderboard/leaderboard/test/authority"
)

// Secrets are the certificates and passwords of servers with TLS, and of their clients. The servers
// require a client certificate and have one user.
type Secrets struct {
	CA                 string // the path of the authority's certificate
	Cert, Key          string // the paths of the client's certificate and key
	Username, Password string

	server authority.Pair
}

// NewSecrets writes certificates for servers at localhost and 127.0.0.1 to 127.0.0.32, and for
// clients. dir must exist as long as the servers run.
func NewSecrets(dir string) (*Secrets, error) {
	a, err := authority.New(dir, "ca")
	if err != nil {
		return nil, fmt.Errorf("cluster: certificates: %w", err)
	}
	hosts := []string{"localhost"}
	for i := range blockSize {
		hosts = append(hosts, fmt.Sprintf("127.0.0.%d", i+1))
	}
	s := &Secrets{CA: a.File, Username: "leaderboard", Password: rand.Text()}
	if s.server, err = a.Issue("server", hosts...); err != nil {
		return nil, fmt.Errorf("cluster: certificates: %w", err)
	}
	client, err := a.Issue("client")
	if err != nil {
		return nil, fmt.Errorf("cluster: certificates: %w", err)
	}
	s.Cert, s.Key = client.Cert, client.Key
	return s, nil
}

// TLS returns the configuration of a client.
func (s *Secrets) TLS() (*tls.Config, error) {
	text, err := os.ReadFile(s.CA)
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(s.Cert, s.Key)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool(), Certificates: []tls.Certificate{pair}}
	c.RootCAs.AppendCertsFromPEM(text)
	return c, nil
}

// ServerPEM returns the path of the file with the servers' private key and certificate.
func (s *Secrets) ServerPEM() string { return s.server.Both }
