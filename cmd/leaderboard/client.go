package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/open-leaderboard/leaderboard/api"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/config"
)

// maxAnswerBytes bounds a message from the server.
const maxAnswerBytes = 64 << 20

// client is a connection to a server, with how its answers are shown.
type client struct {
	*world
	server string
	json   bool // answers as the API's JSON, one object a line
	scores pb.LeaderboardServiceClient
	admin  pb.AdminServiceClient
}

// connection is what the flags of client commands say.
type connection struct {
	server, key, ca, cert, certKey string
	tls, plaintext                 bool
	timeout                        time.Duration
}

// addFlags adds the flags, and takes note of them for the help.
func (o *connection) addFlags(cmd *cobra.Command) {
	f := pflag.NewFlagSet("connection", pflag.ContinueOnError)
	f.StringVar(&o.server, "server", "", "`host:port` of the server's gRPC ($"+config.EnvPrefix+"SERVER, default "+config.Default().GRPC+")")
	f.StringVar(&o.key, "key", "", "API `key` or token; the environment is safer, other users see flags ($"+config.EnvPrefix+"KEY)")
	f.BoolVar(&o.tls, "tls", false, "use TLS, also to this machine; to other machines it is always used")
	f.BoolVar(&o.plaintext, "plaintext", false, "use no TLS, also to other machines: they see the key")
	f.StringVar(&o.ca, "ca", "", "`file` of certificate authorities to check the server by; implies --tls ($"+config.EnvPrefix+"CA)")
	f.StringVar(&o.cert, "cert", "", "`file` of a client certificate to show the server; implies --tls")
	f.StringVar(&o.certKey, "cert-key", "", "`file` of the private key of --cert")
	f.DurationVar(&o.timeout, "timeout", 10*time.Second, "how long to wait for an answer")
	f.VisitAll(func(fl *pflag.Flag) { fl.Annotations = map[string][]string{connectionFlag: nil} })
	cmd.Flags().AddFlagSet(f)
}

// connectionFlag marks the flags that all clients share.
const connectionFlag = "connection"

// clientCommand gives cmd the flags of a connection and --json, and makes it run
// with a client.
func (w *world) clientCommand(cmd *cobra.Command, run func(ctx context.Context, c *client, args []string) error) *cobra.Command {
	asJSON := cmd.Flags().Bool("json", false, "print the API's JSON, for scripts")
	return w.connected(cmd, func(ctx context.Context, c *client, args []string) error {
		c.json = *asJSON
		return run(ctx, c, args)
	})
}

// connected is clientCommand for what has a format of its own.
func (w *world) connected(cmd *cobra.Command, run func(ctx context.Context, c *client, args []string) error) *cobra.Command {
	var o connection
	o.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, closeConn, err := w.dial(o)
		if err != nil {
			return err
		}
		defer closeConn()
		if err := run(cmd.Context(), c, args); err != nil {
			return &callError{err, c.server}
		}
		return nil
	}
	return cmd
}

// dial makes a client. It does not wait for the server.
func (w *world) dial(o connection) (*client, func(), error) {
	for _, from := range []struct {
		value              *string
		variable, fallback string
	}{{&o.server, "SERVER", config.Default().GRPC}, {&o.key, "KEY", ""}, {&o.ca, "CA", ""}} {
		if *from.value == "" {
			*from.value = w.env(config.EnvPrefix + from.variable)
		}
		if *from.value == "" {
			*from.value = from.fallback
		}
	}
	if _, _, err := net.SplitHostPort(o.server); err != nil || strings.Contains(o.server, "/") {
		return nil, nil, usagef("server %q is not of the form host:port; give the address of gRPC, such as %s", o.server, config.Default().GRPC)
	}
	transport, err := o.credentials()
	if err != nil {
		return nil, nil, err
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswerBytes)),
		grpc.WithUserAgent("leaderboard/" + version()),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			ctx, cancel := context.WithTimeout(ctx, o.timeout)
			defer cancel()
			return invoke(ctx, method, req, reply, conn, opts...)
		}),
	}
	if key := strings.TrimSpace(o.key); key != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer(key)))
	}
	conn, err := grpc.NewClient("dns:///"+o.server, options...)
	if err != nil {
		return nil, nil, usagef("server %q: %w", o.server, err)
	}
	c := &client{
		world: w, server: o.server,
		scores: pb.NewLeaderboardServiceClient(conn), admin: pb.NewAdminServiceClient(conn),
	}
	return c, func() { conn.Close() }, nil
}

// credentials decides whether the connection is encrypted: to other machines
// it is, unless --plaintext was said, so that no key travels in the open unasked.
func (o *connection) credentials() (credentials.TransportCredentials, error) {
	switch {
	case o.plaintext && (o.tls || o.cert != ""):
		return nil, usagef("--plaintext does not go with --tls and --cert")
	case (o.cert == "") != (o.certKey == ""):
		return nil, usagef("--cert and --cert-key go together")
	case o.timeout <= 0:
		return nil, usagef("--timeout %v is not positive", o.timeout)
	}
	local := api.CheckLoopback(o.server) == nil
	if o.plaintext || local && !o.tls && o.ca == "" && o.cert == "" {
		return insecure.NewCredentials(), nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.ca != "" {
		pem, err := os.ReadFile(o.ca)
		if err != nil {
			return nil, usagef("--ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usagef("--ca: %s holds no certificate in PEM", o.ca)
		}
	}
	if o.cert != "" {
		cert, err := tls.LoadX509KeyPair(o.cert, o.certKey)
		if err != nil {
			return nil, usagef("--cert: %w", err)
		}
		c.Certificates = []tls.Certificate{cert}
	}
	return credentials.NewTLS(c), nil
}

// bearer is a key that goes with every call. Whether the connection is fit for
// it, credentials has decided.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (bearer) RequireTransportSecurity() bool { return false }

// print shows an answer: as JSON if that was asked for, or by human.
func (c *client) print(answer jsonMessage, human func()) error {
	if !c.json {
		human()
		return nil
	}
	line, err := encodeJSON(answer)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.stdout, "%s\n", line)
	return err
}
