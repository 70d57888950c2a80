package cql

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"io"
	"net"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/open-leaderboard/leaderboard/internal/certs"
	"github.com/open-leaderboard/leaderboard/test/authority"
)

// nodeWithUsers is a fake Cassandra node: it answers the handshake of CQL, asks for
// credentials, and refuses them.
func nodeWithUsers(l net.Listener) {
	const (
		opError, opStartup, opAuthenticate, opOptions, opSupported, opAuthResponse = 0x00, 0x01, 0x03, 0x05, 0x06, 0x0f
		headerBytes                                                                = 9
	)
	text := func(s string) []byte { return append(binary.BigEndian.AppendUint16(nil, uint16(len(s))), s...) }
	answer := func(conn net.Conn) {
		defer conn.Close()
		in := bufio.NewReader(conn)
		header := make([]byte, headerBytes)
		for {
			if _, err := io.ReadFull(in, header); err != nil {
				return
			}
			if _, err := io.CopyN(io.Discard, in, int64(binary.BigEndian.Uint32(header[5:]))); err != nil {
				return
			}
			var op byte
			var body []byte
			switch header[4] {
			case opOptions:
				op, body = opSupported, []byte{0, 0}
			case opStartup:
				op, body = opAuthenticate, text("org.apache.cassandra.auth.PasswordAuthenticator")
			case opAuthResponse:
				op, body = opError, append(binary.BigEndian.AppendUint32(nil, uint32(gocql.ErrCodeCredentials)), text("Provided username ada and/or password are incorrect")...)
			}
			out := []byte{header[0] | 0x80, 0, header[2], header[3], op}
			if _, err := conn.Write(append(binary.BigEndian.AppendUint32(out, uint32(len(body))), body...)); err != nil {
				return
			}
		}
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go answer(conn)
	}
}

// For each wrong or missing credential, Open returns an error of one line that names the
// node and the setting to correct.
func TestRejectedCredentials(t *testing.T) {
	ca, err := authority.New(t.TempDir(), "ca")
	if err != nil {
		t.Fatal(err)
	}
	other, err := authority.New(t.TempDir(), "other")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue("node", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.LoadX509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(ca.File)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	listen := func(c *tls.Config) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		if c != nil {
			l = tls.NewListener(l, c)
		}
		go nodeWithUsers(l)
		return l.Addr().String()
	}
	open := listen(nil)
	secured := listen(&tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert})
	mine := &certs.Client{CA: ca.File, Cert: pair.Cert, Key: pair.Key}
	for _, tt := range []struct {
		name string
		addr string
		user string
		tls  *certs.Client
		want string
	}{
		{"a wrong password", open, "ada", nil, `rejects user "ada": correct cassandra.username and cassandra.password`},
		{"a wrong password over TLS", secured, "ada", mine, `rejects user "ada": correct cassandra.username and cassandra.password`},
		{"no password", open, "", nil, "requires credentials: set cassandra.username and cassandra.password"},
		{"a certificate of an unknown authority", secured, "ada", &certs.Client{CA: other.File}, "cassandra.tls.ca"},
		{"a certificate for another host name", secured, "ada", &certs.Client{CA: ca.File, ServerName: "db.example"}, "cassandra.tls.server_name"},
		{"no client certificate", secured, "ada", &certs.Client{CA: ca.File}, "set cassandra.tls.cert and cassandra.tls.key"},
		{"no TLS", secured, "ada", nil, "may require cassandra.tls.enabled"},
		{"TLS to a node that does not use TLS", open, "ada", mine, "see cassandra.tls.enabled"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := Options{Hosts: []string{tt.addr}, DataCenter: "dc1", Username: tt.user, Password: "wrong", ConnectTimeout: 2 * time.Second}
			if tt.tls != nil {
				client := *tt.tls
				client.Setting = "cassandra.tls"
				h, err := client.Handshake()
				if err != nil {
					t.Fatal(err)
				}
				o.TLS = h
			}
			_, err := Open(t.Context(), o)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), tt.addr) || strings.Contains(err.Error(), "\n") {
				t.Errorf("Open = %v, want one line with %q", err, tt.want)
			}
		})
	}
}

// If a rack is set, the driver first asks nodes of this rack, and never asks nodes of
// another data center.
func TestRackSettings(t *testing.T) {
	o := Options{Hosts: []string{"10.0.0.1"}, DataCenter: "dc1", Rack: "rack2"}
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	cfg, err := o.cluster("lb")
	if err != nil {
		t.Fatal(err)
	}
	// The driver does not export this setting.
	token := reflect.ValueOf(cfg.PoolConfig.HostSelectionPolicy).Elem()
	if token.Type().Name() != "tokenAwareHostPolicy" || token.FieldByName("nonLocalReplicasFallback").Bool() {
		t.Errorf("nodes are chosen by %v", token)
	}
	next := token.FieldByName("fallback").Elem().Elem()
	if next.Type().Name() != "rackAwareRR" || next.FieldByName("localDC").String() != "dc1" || next.FieldByName("localRack").String() != "rack2" {
		t.Errorf("if no replica is available, the driver chooses nodes by %v, want those of rack2 in dc1 first", next)
	}
	if nodes, ok := cfg.HostFilter.(*localNodes); !ok || nodes.dataCenter != "dc1" {
		t.Errorf("the filter of nodes is %+v, so the driver would use nodes of other data centers", cfg.HostFilter)
	}
}
