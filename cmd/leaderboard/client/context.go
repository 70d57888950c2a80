package client

import (
	"cmp"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/open-leaderboard/leaderboard/internal/cli"
	"github.com/open-leaderboard/leaderboard/internal/config"
)

// ContextCommand returns the command context.
func ContextCommand(app *cli.App) *cobra.Command {
	cmd := cli.Parent("context", "Store the addresses and keys of servers", `  leaderboard context add production --server api.example.com:50051 --key-command "pass show leaderboard"
  leaderboard context use production
  leaderboard top`,
		contextAddCommand(app), contextUseCommand(app), contextListCommand(app), contextRemoveCommand(app))
	cmd.Long = `A context is a server's address, its TLS settings and the place of its key. Commands use the
current context, or the context in --context or LEADERBOARD_CONTEXT. Other flags and
environment variables prevail over the context. If --server or LEADERBOARD_SERVER names a
server, and nothing names a context, then commands ignore the current context, so that
its key does not get to another server.

The file leaderboard/contexts.yaml in your configuration folder has the contexts, but no
keys.`
	return cmd
}

func contextAddCommand(app *cli.App) *cobra.Command {
	var sc serverContext
	var replace bool
	cmd := &cobra.Command{
		Use: "add NAME", Short: "Add a context", Args: cli.Exactly("NAME"),
		Long: `Add a context. The first context becomes the current one. Store the key in a file that
only you may read, or in a password manager, and name the file or the command that prints
the key.`,
		Example: `  leaderboard context add local --server 127.0.0.1:50051 --key-file leaderboard-data/admin-key
  leaderboard context add production --server api.example.com:50051 --key-command "pass show leaderboard"
  leaderboard context add test --server test.example.com:50051 --ca ca.pem --key-file ~/.test-key --replace`,
	}
	f := cmd.Flags()
	f.StringVar(&sc.Server, "server", "", "`host:port` of the server's gRPC (required)")
	f.StringVar(&sc.KeyFile, "key-file", "", "`file` with the API key, which only you may read (mode 0600)")
	f.StringVar(&sc.KeyCommand, "key-command", "", "`command` that prints the API key, such as that of a password manager; your shell runs it at each use")
	addTLSFlags(f, &sc.TLS, &sc.Plaintext, &sc.CA, &sc.Cert, &sc.CertKey)
	f.BoolVar(&replace, "replace", false, "replace an existing context with this name")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		name := args[0]
		if sc.Server == "" {
			return cli.Usagef("--server is missing; give the address of gRPC, such as %s", config.Default().GRPC)
		}
		if sc.KeyFile != "" && sc.KeyCommand != "" {
			return cli.Usagef("--key-file and --key-command cannot be combined; choose one")
		}
		if err := sc.absolute(); err != nil {
			return err
		}
		if err := sc.check(); err != nil {
			return err
		}
		all, err := readContexts(app)
		if err != nil {
			return err
		}
		if _, ok := all.Contexts[name]; ok && !replace {
			return cli.Usagef("the context %s exists; to replace it, add --replace", name)
		}
		if sc.KeyFile != "" {
			if _, err := sc.key(cmd.Context(), app, name, all.path); err != nil {
				return cli.Usagef("%w", err)
			}
		}
		all.Contexts[name] = &sc
		if all.Current == "" {
			all.Current = name
		}
		if err := all.write(); err != nil {
			return err
		}
		if all.Current == name {
			app.Printf("added the context %s, which is the current one\n", name)
		} else {
			app.Printf("added the context %s; to use it, run `leaderboard context use %s` or add --context %s\n", name, name, name)
		}
		return nil
	}
	return cmd
}

// absolute makes the paths absolute, because commands run in any folder.
func (sc *serverContext) absolute() error {
	for _, path := range []*string{&sc.CA, &sc.Cert, &sc.CertKey, &sc.KeyFile} {
		if *path == "" {
			continue
		}
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = absolute
	}
	return nil
}

func (sc *serverContext) check() error {
	o := Connection{Server: sc.Server, TLS: sc.TLS, Plaintext: sc.Plaintext, CA: sc.CA, Cert: sc.Cert, CertKey: sc.CertKey, Timeout: defaultTimeout}
	if err := o.checkServer(); err != nil {
		return err
	}
	_, err := o.credentials("--ca")
	return err
}

func contextUseCommand(app *cli.App) *cobra.Command {
	return &cobra.Command{
		Use: "use NAME", Short: "Make a context the current one", Args: cli.Exactly("NAME"),
		Example:           "  leaderboard context use production",
		ValidArgsFunction: completeContexts(app),
		RunE: func(_ *cobra.Command, args []string) error {
			all, err := readContexts(app)
			if err != nil {
				return err
			}
			sc, err := all.find(args[0])
			if err != nil {
				return err
			}
			all.Current = args[0]
			if err := all.write(); err != nil {
				return err
			}
			app.Printf("commands now use the context %s, server %s\n", args[0], sc.Server)
			return nil
		},
	}
}

func contextListCommand(app *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List the contexts, without keys", Args: cli.Exactly(),
		Example: "  leaderboard context list",
	}
	output := app.AddOutput(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		if err := output.Check(cmd); err != nil {
			return err
		}
		all, err := readContexts(app)
		if err != nil {
			return err
		}
		type row struct {
			Name    string `json:"name"`
			Current bool   `json:"current"`
			Server  string `json:"server"`
			TLS     string `json:"tls"`
			Key     string `json:"key"`
		}
		rows := []row{}
		t := cli.NewTable(cli.Row{"", "name", "server", "tls", "key"})
		for _, name := range sortedKeys(all.Contexts) {
			sc := all.Contexts[name]
			r := row{name, name == all.Current, sc.Server, sc.transport(), sc.keySource()}
			rows = append(rows, r)
			marker := ""
			if r.Current {
				marker = "▶"
			}
			t.AppendRow(cli.Row{marker, r.Name, r.Server, r.TLS, r.Key})
		}
		return output.PrintValue(rows, func() {
			if len(rows) == 0 {
				app.Println("no contexts; add one with `leaderboard context add NAME --server HOST:PORT`")
				return
			}
			cli.WriteTable(app.Stdout, t)
		})
	}
	return cmd
}

func (sc *serverContext) transport() string {
	o := Connection{Server: sc.Server, TLS: sc.TLS, Plaintext: sc.Plaintext, CA: sc.CA, Cert: sc.Cert}
	if o.usesTLS() {
		return "yes"
	}
	return "no"
}

// keySource omits the command, because some users write the key into it.
func (sc *serverContext) keySource() string {
	if sc.KeyCommand != "" {
		return "from a command"
	}
	return cmp.Or(sc.KeyFile, "none")
}

func contextRemoveCommand(app *cli.App) *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Short: "Remove a context", Args: cli.Exactly("NAME"),
		Long:              "Remove a context. The file of its key stays.",
		Example:           "  leaderboard context remove test",
		ValidArgsFunction: completeContexts(app),
		RunE: func(_ *cobra.Command, args []string) error {
			all, err := readContexts(app)
			if err != nil {
				return err
			}
			if _, err := all.find(args[0]); err != nil {
				return err
			}
			delete(all.Contexts, args[0])
			note := ""
			if all.Current == args[0] {
				all.Current, note = "", "; no context is current now"
			}
			if err := all.write(); err != nil {
				return err
			}
			app.Printf("removed the context %s%s\n", args[0], note)
			return nil
		},
	}
}

func completeContexts(app *cli.App) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		all, err := readContexts(app)
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var values []cobra.Completion
		for name, sc := range all.Contexts {
			values = append(values, cobra.CompletionWithDesc(name, sc.Server))
		}
		return filterCompletions(values, prefix), cobra.ShellCompDirectiveNoFileComp
	}
}

func addTLSFlags(f *pflag.FlagSet, tls, plaintext *bool, ca, cert, certKey *string) {
	f.BoolVar(tls, "tls", false, "use TLS; this is the default unless the server is on this machine")
	f.BoolVar(plaintext, "plaintext", false, "do not use TLS, even if the server is on another machine; the key then crosses the network unencrypted")
	f.StringVar(ca, "ca", "", "`file` of the certificate authorities that may have signed the server's certificate; implies --tls")
	f.StringVar(cert, "cert", "", "`file` of the client certificate; implies --tls")
	f.StringVar(certKey, "cert-key", "", "`file` of the private key of --cert")
}
