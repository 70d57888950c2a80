package cql

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/open-leaderboard/leaderboard/internal/certs"
	"github.com/open-leaderboard/leaderboard/test/authority"
)

// nodeWithUsers answers like a Cassandra node that refuses all credentials.
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

// The error of Open has one line, and names the node and the setting.
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
	config, err := ca.Server(pair)
	if err != nil {
		t.Fatal(err)
	}
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
	plain := listen(nil)
	secured := listen(config)
	mine := &certs.Client{CA: ca.File, Cert: pair.Cert, Key: pair.Key}
	for _, tt := range []struct {
		name string
		addr string
		user string
		tls  *certs.Client
		want string
	}{
		{"a wrong password", plain, "ada", nil, `rejects user "ada": correct cassandra.username and cassandra.password`},
		{"a wrong password over TLS", secured, "ada", mine, `rejects user "ada": correct cassandra.username and cassandra.password`},
		{"no password", plain, "", nil, "requires credentials: set cassandra.username and cassandra.password"},
		{"a certificate of an unknown authority", secured, "ada", &certs.Client{CA: other.File}, "cassandra.tls.ca"},
		{"a certificate for another host name", secured, "ada", &certs.Client{CA: ca.File, ServerName: "db.example"}, "cassandra.tls.server_name"},
		{"no client certificate", secured, "ada", &certs.Client{CA: ca.File}, "set cassandra.tls.cert and cassandra.tls.key"},
		{"no TLS", secured, "ada", nil, "may require cassandra.tls.enabled"},
		{"TLS to a node that does not use TLS", plain, "ada", mine, "see cassandra.tls.enabled"},
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
				t.Errorf("Open = %v, want one line with the node %s and %q", err, tt.addr, tt.want)
			}
		})
	}
}

// node uses reflection, because the driver does not export the data center and the rack.
func node(t *testing.T, address, dataCenter, rack string) *gocql.HostInfo {
	t.Helper()
	h := new(gocql.HostInfo).SetConnectAddress(net.ParseIP(address))
	h.SetHostID(address)
	for name, value := range map[string]string{"dataCenter": dataCenter, "rack": rack} {
		field := reflect.ValueOf(h).Elem().FieldByName(name)
		reflect.NewAt(field.Type(), field.Addr().UnsafePointer()).Elem().SetString(value)
	}
	return h
}

// The driver asks the nodes of the configured rack before the other nodes.
func TestRackSettings(t *testing.T) {
	for _, rack := range []string{"rack1", "rack2", ""} {
		o := Options{Hosts: []string{"10.0.0.1"}, DataCenter: "dc1", Rack: rack}
		if err := o.complete(); err != nil {
			t.Fatal(err)
		}
		cfg, err := o.cluster("lb")
		if err != nil {
			t.Fatal(err)
		}
		policy := cfg.PoolConfig.HostSelectionPolicy
		policy.Init(new(gocql.Session))
		inRack := map[string]bool{}
		for i, place := range []string{"dc1 rack1", "dc1 rack2", "dc2 rack1", "dc1 rack1", "dc1 rack2", "dc2 rack2"} {
			dataCenter, nodeRack, _ := strings.Cut(place, " ")
			h := node(t, fmt.Sprintf("10.0.0.%d", i+1), dataCenter, nodeRack)
			if cfg.HostFilter.Accept(h) {
				policy.AddHost(h)
				inRack[h.HostID()] = nodeRack == rack
			}
		}
		var asked []*gocql.HostInfo
		first := map[string]bool{}
		for range 8 {
			asked = nil
			for next := policy.Pick(nil); ; {
				h := next()
				if h == nil {
					break
				}
				asked = append(asked, h.Info())
			}
			if len(asked) != 4 {
				t.Fatalf("rack %q: the driver asks %d nodes, want the 4 nodes of dc1", rack, len(asked))
			}
			first[asked[0].HostID()] = true
			for i, h := range asked {
				if rack != "" && inRack[h.HostID()] != (i < 2) {
					t.Errorf("rack %q: node %s of %s is number %d in the order of the driver, want the nodes of rack %q before the others", rack, h.HostID(), h.Rack(), i+1, rack)
				}
			}
		}
		if want := map[bool]int{true: 4, false: 2}[rack == ""]; len(first) != want {
			t.Errorf("rack %q: the first node of each pick is one of %v, want %d different nodes", rack, first, want)
		}
		if rack == "" {
			continue
		}
		policy.HostDown(asked[0])
		policy.HostDown(asked[1])
		if h := policy.Pick(nil)(); h == nil || h.Info().Rack() == rack || h.Info().DataCenter() != "dc1" {
			t.Errorf("rack %q is down: the first node of a pick is %v, want a node of the other rack of dc1", rack, h)
		}
	}
}
