// Package client contains the commands that call a server. It imports no code of the server.
package client

import (
	"cmp"
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
	"github.com/open-leaderboard/leaderboard/internal/cli"
	"github.com/open-leaderboard/leaderboard/internal/config"
)

const (
	maxAnswerBytes = 64 << 20
	defaultTimeout = 10 * time.Second
)

// Client is a connection to a server, with the input and output of a command.
type Client struct {
	*cli.App
	Server string
	Output *cli.Output // nil means tables
	Scores pb.LeaderboardServiceClient
	Admin  pb.AdminServiceClient
}

// Connection is the settings of the connection to a server.
type Connection struct {
	Context           string // name of a context
	Server            string // host:port of gRPC
	Key               string // if empty, calls carry no credentials
	CA, Cert, CertKey string // files in PEM
	TLS, Plaintext    bool
	Timeout           time.Duration // of each call, except streams
}

func (o *Connection) addFlags(cmd *cobra.Command) {
	f := pflag.NewFlagSet("connection", pflag.ContinueOnError)
	f.StringVar(&o.Context, "context", "", "`name` of a context of \"leaderboard context add\" ($"+config.EnvPrefix+"CONTEXT, default the current context)")
	f.StringVar(&o.Server, "server", "", "`host:port` of the server's gRPC ($"+config.EnvPrefix+"SERVER, default "+config.Default().GRPC+")")
	f.StringVar(&o.Key, "key", "", "API `key` or token; prefer $"+config.EnvPrefix+"KEY, because other users of this machine can see flags")
	addTLSFlags(f, &o.TLS, &o.Plaintext, &o.CA, &o.Cert, &o.CertKey)
	f.Lookup("ca").Usage += " ($" + config.EnvPrefix + "CA)"
	f.DurationVar(&o.Timeout, "timeout", defaultTimeout, "how long to wait for each answer")
	annotate(f, "context", contextValues)
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
		c, closeConn, err := Dial(cmd.Context(), app, o)
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
		if f.Value.Type() == "string" && f.Value.String() == "" && slices.Contains([]string{"board", "season", "user", "match", "source", "context"}, f.Name) {
			err = cli.Usagef("--%s is empty; give a value, or omit the flag", f.Name)
		}
	})
	return err
}

// DataCommand is like [Command] for a command that prints data: the client has an output.
func DataCommand(app *cli.App, cmd *cobra.Command, run func(ctx context.Context, c *Client, args []string) error) *cobra.Command {
	output := app.AddOutput(cmd)
	Command(app, cmd, func(ctx context.Context, c *Client, args []string) error {
		c.Output = output
		return run(ctx, c, args)
	})
	call := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := output.Check(cmd); err != nil {
			return err
		}
		return call(cmd, args)
	}
	return cmd
}

// Dial returns a client. Settings that o lacks come from the environment and from a context. Dial does
// not wait for the server. The caller must call closeConn.
func Dial(ctx context.Context, app *cli.App, o Connection) (c *Client, closeConn func(), err error) {
	ca := "--ca"
	if o.CA == "" {
		ca = config.EnvPrefix + "CA"
	}
	for _, setting := range []struct {
		value    *string
		variable string
	}{{&o.Server, "SERVER"}, {&o.Key, "KEY"}, {&o.CA, "CA"}} {
		if *setting.value == "" {
			*setting.value = app.Getenv(config.EnvPrefix + setting.variable)
		}
	}
	if o.CA == "" {
		ca = "ca of the context"
	}
	if err := o.applyContext(ctx, app); err != nil {
		return nil, nil, err
	}
	o.Server = cmp.Or(o.Server, config.Default().GRPC)
	if err := o.checkServer(); err != nil {
		return nil, nil, err
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

func (o *Connection) checkServer() error {
	if _, _, err := net.SplitHostPort(o.Server); err != nil || strings.Contains(o.Server, "/") {
		return cli.Usagef("server %q is not of the form host:port; give the address of gRPC, such as %s", o.Server, config.Default().GRPC)
	}
	return nil
}

func (o *Connection) usesTLS() bool {
	return !o.Plaintext && (!isLoopback(o.Server) || o.TLS || o.CA != "" || o.Cert != "")
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
	if !o.usesTLS() {
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
	if c.Output.IsTable() {
		printText()
		return nil
	}
	return c.Output.Print(func() (cli.Document, error) { return document(answer) }, printText)
}
