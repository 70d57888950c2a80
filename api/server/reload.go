package server

import (
	"crypto/tls"
	"sync/atomic"
)

// Certificates is the TLS configuration of a running server. Reload reads its files again.
type Certificates struct {
	files   TLS
	current atomic.Pointer[tls.Config]
}

// Load reads the files that t names. It returns nil for the zero TLS.
func (t TLS) Load() (*Certificates, error) {
	if t == (TLS{}) {
		return nil, nil
	}
	c := &Certificates{files: t}
	return c, c.Reload()
}

// Reload reads the files for new connections. After an error, the previous configuration stays in
// use. If c is nil, Reload does nothing.
func (c *Certificates) Reload() error {
	if c == nil {
		return nil
	}
	config, err := c.files.config()
	if err != nil {
		return err
	}
	config.NextProtos = []string{"h2", "http/1.1"} // net/http and gRPC add these protocols to the result of Config, not of GetConfigForClient
	c.current.Store(config)
	return nil
}

// Config returns the configuration of a listener, or nil if c is nil.
func (c *Certificates) Config() *tls.Config {
	if c == nil {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		config := c.current.Load()
		if config.GetConfigForClient != nil {
			return config.GetConfigForClient(hello)
		}
		return config, nil
	}}
}
