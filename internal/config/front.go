package config

import (
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// Web contains the settings for browsers and caches.
type Web struct {
	CORSOrigins    []string `key:"cors_origins" unit:"origins such as https://game.example, or *, comma-separated" help:"Origins whose web pages may call the API."`
	FrameAncestors []string `key:"frame_ancestors" unit:"origins such as https://game.example, self or *, comma-separated" help:"Origins whose pages may show the web page in a frame."`
	CacheControl   string   `key:"cache_control" unit:"such as public, max-age=5" help:"Header Cache-Control of successful GETs by callers without a key, with public_read. Other answers are never cached."`
}

func (c *Config) validateAddresses(v *validator) {
	keys := map[string]string{}
	for _, a := range []struct{ key, address string }{{"http", c.HTTP}, {"grpc", c.GRPC}, {"admin", c.Admin}} {
		if a.key == "admin" && a.address == "" {
			continue
		}
		host, port, err := net.SplitHostPort(a.address)
		if err != nil {
			v.errorf(a.key, "%q is not of the form host:port", a.address)
			continue
		}
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			v.errorf(a.key, "%q has no port between 0 and 65535", a.address)
			continue
		}
		if key, taken := keys[a.address]; taken && n != 0 {
			v.errorf(a.key, "%q is also the address of %s; choose another address", a.address, key)
		}
		keys[a.address] = a.key
		if ip := net.ParseIP(host); c.Insecure && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			v.errorf(a.key, "%q is not a loopback address, which --insecure requires: listen on 127.0.0.1 or [::1]", a.address)
		}
	}
	for _, proxy := range c.TrustedProxies {
		if _, err := parsePrefix(proxy); err != nil {
			v.errorf("trusted_proxies", "%q is neither an IP address nor a network such as 10.0.0.0/8", proxy)
		}
	}
}

// ProxyPrefixes returns TrustedProxies as networks.
func (c *Config) ProxyPrefixes() []netip.Prefix {
	var prefixes []netip.Prefix
	for _, proxy := range c.TrustedProxies {
		if p, err := parsePrefix(proxy); err == nil { // Validate has checked proxy
			prefixes = append(prefixes, p)
		}
	}
	return prefixes
}

func parsePrefix(text string) (netip.Prefix, error) {
	if ip, err := netip.ParseAddr(text); err == nil {
		return ip.Unmap().Prefix(ip.Unmap().BitLen())
	}
	p, err := netip.ParsePrefix(text)
	return p.Masked(), err
}

func (w *Web) validate(v *validator, insecure bool) {
	for _, origin := range w.CORSOrigins {
		switch {
		case origin == "*" && insecure:
			v.errorf("web.cors_origins", "* is not allowed with insecure, because every web page could then change scores")
		case origin != "*" && !isOrigin(origin):
			v.errorf("web.cors_origins", "%q is not an origin such as https://game.example", origin)
		}
	}
	for _, origin := range w.FrameAncestors {
		if origin != "*" && origin != "self" && !isOrigin(origin) {
			v.errorf("web.frame_ancestors", "%q is neither self, * nor an origin such as https://game.example", origin)
		}
	}
	if w.CacheControl == "" || strings.ContainsFunc(w.CacheControl, func(r rune) bool { return r < ' ' || r > '~' }) {
		v.errorf("web.cache_control", "%q is not a value of Cache-Control, such as no-store", w.CacheControl)
	}
}

// isOrigin reports whether text is an origin in the form that browsers send.
func isOrigin(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.Scheme+"://"+u.Host == text &&
		text == strings.ToLower(text) && !strings.ContainsAny(text, " ;,*'\"")
}

// AncestorSources returns FrameAncestors in the form of a Content-Security-Policy.
func (w *Web) AncestorSources() []string {
	var sources []string
	for _, a := range w.FrameAncestors {
		if a == "self" {
			a = "'self'"
		}
		sources = append(sources, a)
	}
	return sources
}
