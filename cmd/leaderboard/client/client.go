// Package client contains the commands that call a server. It imports no code of the server.
package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/restjson"
	"github.com/open-leaderboard/leaderboard/internal/cli"
	"github.com/open-leaderboard/leaderboard/internal/config"
)

const maxAnswerBytes = 64 << 20

// Client is a connection to a server, with the input and output of a command.
type Client struct {
	*cli.App
	Server string
	JSON   bool // print the API's JSON, one object per line
	Scores pb.LeaderboardServiceClient
	Admin  pb.AdminServiceClient
}

// Connection is the settings of the connection to a server.
type Connection struct {
	Server            string // host:port of gRPC
	Key               string // if empty, calls carry no credentials
	CA, Cert, CertKey string // files in PEM
	TLS, Plaintext    bool
	Timeout           time.Duration // of each call, except streams
}

func (o *Connection) addFlags(cmd *cobra.Command) {
	f := pflag.NewFlagSet("connection", pflag.ContinueOnError)
	f.StringVar(&o.Server, "server", "", "`host:port` of the server's gRPC ($"+config.EnvPrefix+"SERVER, default "+config.Default().GRPC+")")
	f.StringVar(&o.Key, "key", "", "API `key` or token; prefer $"+config.EnvPrefix+"KEY, because other users of this machine can see flags")
	f.BoolVar(&o.TLS, "tls", false, "use TLS; this is the default unless the server is on this machine")
	f.BoolVar(&o.Plaintext, "plaintext", false, "do not use TLS, even if the server is on another machine; the key then crosses the network unencrypted")
	f.StringVar(&o.CA, "ca", "", "`file` of the certificate authorities that may have signed the server's certificate; implies --tls ($"+config.EnvPrefix+"CA)")
	f.StringVar(&o.Cert, "cert", "", "`file` of the client certificate; implies --tls")
	f.StringVar(&o.CertKey, "cert-key", "", "`file` of the private key of --cert")
	f.DurationVar(&o.Timeout, "timeout", 10*time.Second, "how long to wait for each answer")
	cli.MarkConnection(f)
	cmd.Flags().AddFlagSet(f)
}

// Command adds the flags of a connection to cmd. When cmd runs, it calls run with a client.
func Command(app *cli.App, cmd *cobra.Command, run func(ctx context.Context, c *Client, args []string) error) *cobra.Command {
	var o Connection
	o.addFlags(cmd)
	addCompletion(app, cmd, &o)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkIDs(cmd.Flags()); err != nil {
			return err
		}
		c, closeConn, err := Dial(app, o)
		if err != nil {
			return err
		}
		defer closeConn()
		return c.WrapError(run(cmd.Context(), c, args))
	}
	return cmd
}

// checkIDs returns an error if a flag for an id is given and empty, such as --board "$BOARD" in a
// script without this variable. The server would use the default board, or every board.
func checkIDs(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "string" && f.Value.String() == "" && slices.Contains([]string{"board", "season", "user", "match", "source"}, f.Name) {
			err = cli.Usagef("--%s is empty; give a value, or omit the flag", f.Name)
		}
	})
	return err
}

func jsonCommand(app *cli.App, cmd *cobra.Command, run func(ctx context.Context, c *Client, args []string) error) *cobra.Command {
	asJSON := cmd.Flags().Bool("json", false, "print the API's JSON, for scripts")
	return Command(app, cmd, func(ctx context.Context, c *Client, args []string) error {
		c.JSON = *asJSON
		return run(ctx, c, args)
	})
}

// Dial returns a client. Settings that o lacks come from the environment. Dial does not wait for
// the server. The caller must call closeConn.
func Dial(app *cli.App, o Connection) (c *Client, closeConn func(), err error) {
	ca := "--ca"
	if o.CA == "" {
		ca = config.EnvPrefix + "CA"
	}
	for _, setting := range []struct {
		value              *string
		variable, fallback string
	}{{&o.Server, "SERVER", config.Default().GRPC}, {&o.Key, "KEY", ""}, {&o.CA, "CA", ""}} {
		if *setting.value == "" {
			*setting.value = app.Getenv(config.EnvPrefix + setting.variable)
		}
		if *setting.value == "" {
			*setting.value = setting.fallback
		}
	}
	if _, _, err := net.SplitHostPort(o.Server); err != nil || strings.Contains(o.Server, "/") {
		return nil, nil, cli.Usagef("server %q is not of the form host:port; give the address of gRPC, such as %s", o.Server, config.Default().GRPC)
	}
	transport, err := o.credentials(ca)
	if err != nil {
		return nil, nil, err
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswerBytes)),
		grpc.WithUserAgent("leaderboard/" + cli.ReadVersion().Version),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			ctx, cancel := context.WithTimeout(ctx, o.Timeout)
			defer cancel()
			return invoke(ctx, method, req, reply, conn, opts...)
		}),
	}
	if key := strings.TrimSpace(o.Key); key != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer(key)))
	}
	conn, err := grpc.NewClient("dns:///"+o.Server, options...)
	if err != nil {
		return nil, nil, cli.Usagef("server %q: %w", o.Server, err)
	}
	c = &Client{
		App: app, Server: o.Server,
		Scores: pb.NewLeaderboardServiceClient(conn), Admin: pb.NewAdminServiceClient(conn),
	}
	return c, func() { _ = conn.Close() }, nil
}

// credentials uses TLS for another machine unless --plaintext is set, because a key must not cross
// the network unencrypted. ca names the source of o.CA, for error texts.
func (o *Connection) credentials(ca string) (credentials.TransportCredentials, error) {
	switch {
	case o.Plaintext && (o.TLS || o.Cert != ""):
		return nil, cli.Usagef("--plaintext cannot be combined with --tls or --cert")
	case (o.Cert == "") != (o.CertKey == ""):
		return nil, cli.Usagef("--cert and --cert-key must be given together")
	case o.Timeout <= 0:
		return nil, cli.Usagef("--timeout %v is not positive", o.Timeout)
	}
	if o.Plaintext || isLoopback(o.Server) && !o.TLS && o.CA == "" && o.Cert == "" {
		return insecure.NewCredentials(), nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CA != "" {
		pem, err := os.ReadFile(o.CA)
		if err != nil {
			return nil, cli.Usagef("%s: %w", ca, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, cli.Usagef("%s: %s contains no certificate in PEM format", ca, o.CA)
		}
	}
	if o.Cert != "" {
		cert, err := tls.LoadX509KeyPair(o.Cert, o.CertKey)
		if err != nil {
			return nil, cli.Usagef("--cert: %w", err)
		}
		c.Certificates = []tls.Certificate{cert}
	}
	return credentials.NewTLS(c), nil
}

func isLoopback(server string) bool {
	host, _, err := net.SplitHostPort(server)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// bearer is a key that the client sends with every call. [Connection.credentials] chooses TLS.
type bearer string

// GetRequestMetadata implements [credentials.PerRPCCredentials].
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity implements [credentials.PerRPCCredentials].
func (bearer) RequireTransportSecurity() bool { return false }

func (c *Client) print(answer proto.Message, printText func()) error {
	if !c.JSON {
		printText()
		return nil
	}
	line, err := restjson.Append(nil, answer)
	if err != nil {
		return err
	}
	return c.WriteJSON(line)
}
