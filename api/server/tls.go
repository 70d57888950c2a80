package server

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"time"
)

// TLS names the files of a server's certificate. The zero value means no TLS.
type TLS struct {
	CertFile string // PEM, with intermediates; reloaded when it changes
	KeyFile  string // PEM
	// ClientCAFile is a PEM file of certificate authorities. If it is set, every client
	// must present a certificate that one of them has signed (mTLS). The client still
	// needs an API key.
	ClientCAFile string
}

// Config reads the files and returns their TLS configuration. It returns nil for
// the zero TLS.
func (t TLS) Config() (*tls.Config, error) {
	if t == (TLS{}) {
		return nil, nil
	}
	files := &certFiles{cert: t.CertFile, key: t.KeyFile}
	if _, err := files.certificate(nil); err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: files.certificate}
	if t.ClientCAFile == "" {
		return c, nil
	}
	pem, err := os.ReadFile(t.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("server: client certificate authorities: %w", err)
	}
	c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !c.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("server: client certificate authorities: %s holds no PEM certificate", t.ClientCAFile)
	}
	return c, nil
}

// certFiles is a certificate that is reloaded when its file changes, so that a renewal
// needs no restart.
type certFiles struct {
	cert, key string

	mu       sync.Mutex
	modified time.Time
	loaded   *tls.Certificate
}

func (f *certFiles) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.cert)
	if err == nil && (f.loaded == nil || !info.ModTime().Equal(f.modified)) {
		var c tls.Certificate
		if c, err = tls.LoadX509KeyPair(f.cert, f.key); err == nil {
			f.loaded, f.modified = &c, info.ModTime()
		}
	}
	if f.loaded == nil {
		return nil, fmt.Errorf("server: certificate: %w", err)
	}
	return f.loaded, nil // a new file may be incomplete; the next handshake tries again
}
