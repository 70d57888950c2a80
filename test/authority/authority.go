// Package authority makes certificates for tests.
package authority

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Authority signs certificates. All its certificates are PEM files in one folder.
type Authority struct {
	File string // path of the authority's own certificate

	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

// Pair is a certificate for servers and clients, with its private key.
type Pair struct {
	Cert, Key string // paths
	Both      string // path of a file with the key and the certificate
}

// New makes an authority with the certificate dir/name.pem. The folder dir must exist.
func New(dir, name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	a := &Authority{File: filepath.Join(dir, name+".pem"), dir: dir, key: key, cert: cert}
	return a, os.WriteFile(a.File, block("CERTIFICATE", der), 0o600)
}

// Issue writes a certificate for hosts (names or IP addresses) and the certificate's private key.
// The names of the files begin with name.
func (a *Authority) Issue(name string, hosts ...string) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return Pair{}, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	certPEM, keyPEM := block("CERTIFICATE", der), block("PRIVATE KEY", keyDER)
	path := filepath.Join(a.dir, name)
	p := Pair{Cert: path + ".pem", Key: path + "-key.pem", Both: path + "-both.pem"}
	for file, text := range map[string][]byte{p.Cert: certPEM, p.Key: keyPEM, p.Both: bytes.Join([][]byte{keyPEM, certPEM}, nil)} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return Pair{}, err
		}
	}
	return p, nil
}

// Server returns the TLS configuration of a server that has the certificate p and requires a client
// certificate of the authority.
func (a *Authority) Server(p Pair) (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(p.Cert, p.Key)
	if err != nil {
		return nil, err
	}
	clients := x509.NewCertPool()
	clients.AddCert(a.cert)
	return &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert}, nil
}

func serial() *big.Int {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return new(big.Int).SetBytes(b)
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
