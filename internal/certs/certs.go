// Package certs reads certificates from PEM files. It reads a file again if the file's
// modification time or size changes, so a renewed certificate needs no restart.
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"time"
)

// File is a value read from files. Its methods are safe for concurrent use.
type File[T any] struct {
	paths []string
	parse func() (T, error)

	mu     sync.Mutex
	stamps []stamp
	value  T
}

type stamp struct {
	modified time.Time
	size     int64
}

// Pair returns a File of a certificate chain and its private key.
func Pair(certPath, keyPath string) (*File[*tls.Certificate], error) {
	return open(func() (*tls.Certificate, error) {
		c, err := tls.LoadX509KeyPair(certPath, keyPath)
		if err != nil {
			return nil, fmt.Errorf("certificate %s: %w", certPath, err)
		}
		return &c, nil
	}, certPath, keyPath)
}

// Pool returns a File of certificate authorities.
func Pool(path string) (*File[*x509.CertPool], error) {
	return open(func() (*x509.CertPool, error) {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("certificate authorities: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("certificate authorities: %s contains no PEM certificate", path)
		}
		return pool, nil
	}, path)
}

func open[T any](parse func() (T, error), paths ...string) (*File[T], error) {
	f := &File[T]{paths: paths, parse: parse}
	stamps := f.stat()
	value, err := parse()
	if err != nil {
		return nil, err
	}
	f.stamps, f.value = stamps, value
	return f, nil
}

// Current returns the last valid content of the files, also while a renewal writes them.
func (f *File[T]) Current() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	stamps := f.stat() // before parse: if a file changes in between, the next call reads it again
	for i := range stamps {
		if stamps[i] != f.stamps[i] {
			if value, err := f.parse(); err == nil {
				f.stamps, f.value = stamps, value
			}
			break
		}
	}
	return f.value
}

// stat returns a zero stamp for a missing file.
func (f *File[T]) stat() []stamp {
	stamps := make([]stamp, len(f.paths))
	for i, path := range f.paths {
		if info, err := os.Stat(path); err == nil {
			stamps[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return stamps
}
