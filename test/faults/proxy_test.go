package faults

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

type proxy struct {
	*toxiproxy.Proxy
	t      *testing.T
	server *toxiproxy.ApiServer
}

// newProxy starts a proxy. The method connect sets its upstream server.
func newProxy(t *testing.T, host string) *proxy {
	t.Helper()
	p := &proxy{t: t, server: toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())}
	p.Proxy = toxiproxy.NewProxy(p.server, t.Name(), net.JoinHostPort(host, "0"), "")
	must(t, p.Start())
	t.Cleanup(p.Stop)
	return p
}

func (p *proxy) connect(upstream string) string {
	p.t.Helper()
	must(p.t, p.Update(&toxiproxy.Proxy{Listen: p.Listen, Upstream: upstream, Enabled: true}))
	return p.Listen
}

// networkFault is a set of toxics. A toxic is Toxiproxy's name for a fault in one direction of a
// link.
type networkFault struct {
	name   string
	toxics []string // the settings of each toxic, in JSON
	oneWay bool     // data arrives in one direction only
}

const (
	toServer = "upstream"   // the direction of requests
	toClient = "downstream" // the direction of answers
)

func toxic(kind, direction, attributes string) string {
	return fmt.Sprintf(`{"type":%q,"stream":%q,"attributes":{%s}}`, kind, direction, attributes)
}

// The toxic reset_peer closes connections with a reset. The toxic timeout drops all data of one
// direction: connections stay open, clients can open connections, and neither side gets an error.
var networkFaults = []networkFault{
	{name: "500 ms slower", toxics: []string{toxic("latency", toServer, `"latency":250`), toxic("latency", toClient, `"latency":250`)}},
	{name: "1 KB per second", toxics: []string{toxic("bandwidth", toServer, `"rate":1`), toxic("bandwidth", toClient, `"rate":1`)}},
	{name: "reset", toxics: []string{toxic("reset_peer", toServer, `"timeout":0`), toxic("reset_peer", toClient, `"timeout":0`)}},
	{name: "half open", toxics: []string{toxic("timeout", toServer, `"timeout":0`), toxic("timeout", toClient, `"timeout":0`)}},
	{name: "requests are lost", toxics: []string{toxic("timeout", toServer, `"timeout":0`)}, oneWay: true},
	{name: "answers are lost", toxics: []string{toxic("timeout", toClient, `"timeout":0`)}, oneWay: true},
}

func (p *proxy) add(t *testing.T, f networkFault) {
	t.Helper()
	for _, settings := range f.toxics {
		_, err := p.Toxics.AddToxicJson(strings.NewReader(settings))
		must(t, err)
	}
}

// clear ends all faults. It closes connections that have the toxic timeout.
func (p *proxy) clear(t *testing.T) { p.Toxics.ResetToxics(t.Context()) }
