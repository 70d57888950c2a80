package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/open-leaderboard/leaderboard/internal/cli"
	"github.com/open-leaderboard/leaderboard/internal/config"
)

const (
	maxContextsBytes = 1 << 20
	maxKeyBytes      = 64 << 10
)

// contexts is the file of the user's contexts.
type contexts struct {
	Current  string                    `yaml:"current,omitempty"`
	Contexts map[string]*serverContext `yaml:"contexts"`

	path string
}

// serverContext is a named connection. Its key is in a file, or in the output of a command.
type serverContext struct {
	Server     string `yaml:"server"`
	TLS        bool   `yaml:"tls,omitempty"`
	Plaintext  bool   `yaml:"plaintext,omitempty"`
	CA         string `yaml:"ca,omitempty"`
	Cert       string `yaml:"cert,omitempty"`
	CertKey    string `yaml:"cert_key,omitempty"`
	KeyFile    string `yaml:"key_file,omitempty"`
	KeyCommand string `yaml:"key_command,omitempty"`
}

// contextsPath returns the path of the file of contexts, or "" if the environment names no home folder.
func contextsPath(app *cli.App) string {
	folder := app.Getenv("XDG_CONFIG_HOME")
	if runtime.GOOS == "windows" {
		folder = app.Getenv("AppData")
	} else if home := app.Getenv("HOME"); folder == "" && home != "" {
		folder = filepath.Join(home, ".config")
	}
	if !filepath.IsAbs(folder) {
		return ""
	}
	return filepath.Join(folder, "leaderboard", "contexts.yaml")
}

// readContexts returns no contexts if there is no file.
func readContexts(app *cli.App) (*contexts, error) {
	c := &contexts{Contexts: map[string]*serverContext{}, path: contextsPath(app)}
	if c.path == "" {
		return c, nil
	}
	text, err := readLimited(c.path, maxContextsBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(c); err != nil && !errors.Is(err, io.EOF) {
		return nil, cli.Usagef("%s: %w; correct the file, or delete it and add the contexts again", c.path, err)
	}
	if c.Contexts == nil {
		c.Contexts = map[string]*serverContext{}
	}
	for name, sc := range c.Contexts {
		if sc == nil {
			return nil, cli.Usagef("%s: context %q has no server; correct the file", c.path, name)
		}
	}
	return c, nil
}

func readLimited(path string, limit int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, limit+1))
	if int64(len(text)) > limit {
		err = fmt.Errorf("%s is larger than %d KiB", path, limit>>10)
	}
	return text, err
}

func (c *contexts) write() error {
	if c.path == "" {
		return errors.New("the environment names no folder for the contexts; set HOME or XDG_CONFIG_HOME")
	}
	text, err := yaml.Marshal(c)
	if err != nil {
		return err
	}
	return cli.WritePrivate(c.path, text)
}

// find returns the context name, or a usage error that lists the contexts.
func (c *contexts) find(name string) (*serverContext, error) {
	if sc, ok := c.Contexts[name]; ok {
		return sc, nil
	}
	if len(c.Contexts) == 0 {
		return nil, cli.Usagef("there is no context %q; add it with `leaderboard context add %s --server HOST:PORT`", name, name)
	}
	return nil, cli.Usagef("there is no context %q; the contexts are %s", name, strings.Join(sortedKeys(c.Contexts), ", "))
}

// applyContext sets the fields of o that neither a flag nor the environment has set. The context comes
// from --context, LEADERBOARD_CONTEXT or the file. If only the file chooses it, another server's
// address replaces the whole context: the server must not get the key of the context.
func (o *Connection) applyContext(ctx context.Context, app *cli.App) error {
	name := cmp.Or(o.Context, app.Getenv(config.EnvPrefix+"CONTEXT"))
	if name == "" && o.Server != "" {
		return nil
	}
	all, err := readContexts(app)
	if err != nil {
		return err
	}
	if name == "" {
		if name = all.Current; name == "" {
			return nil
		}
	}
	sc, err := all.find(name)
	if err != nil {
		return err
	}
	o.Server = cmp.Or(o.Server, sc.Server)
	if !o.Plaintext {
		o.Plaintext = sc.Plaintext && !o.TLS && o.CA == "" && o.Cert == ""
		o.TLS, o.CA = o.TLS || sc.TLS && !o.Plaintext, cmp.Or(o.CA, sc.CA)
		if o.Cert == "" && o.CertKey == "" {
			o.Cert, o.CertKey = sc.Cert, sc.CertKey
		}
	}
	if o.Key == "" {
		o.Key, err = sc.key(ctx, app, name, all.path)
	}
	return err
}

// key returns the key of a context, or "" for a context without a key. Its errors do not contain the
// key.
func (sc *serverContext) key(ctx context.Context, app *cli.App, name, path string) (string, error) {
	var text []byte
	var err error
	switch {
	case sc.KeyFile != "":
		if mode, open := cli.OpenToOthers(sc.KeyFile); open {
			app.Notef("warning: other users of this machine may read %s (%s), the key of the context %s; make it private with chmod 600\n", sc.KeyFile, mode, name)
		}
		if text, err = readLimited(sc.KeyFile, maxKeyBytes); err != nil {
			return "", fmt.Errorf("cannot read the key of the context %s: %w", name, err)
		}
	case sc.KeyCommand != "":
		if mode, open := cli.OpenToOthers(path); open {
			return "", cli.Usagef("other users of this machine may read or change %s (%s), and with it the command that prints the key; make it private with chmod 600", path, mode)
		}
		if text, err = commandOutput(ctx, app, sc.KeyCommand); err != nil {
			return "", fmt.Errorf("the command that prints the key of the context %s failed: %w", name, err)
		}
	default:
		return "", nil
	}
	key := strings.TrimSpace(string(text))
	if key == "" || strings.ContainsAny(key, "\r\n") {
		return "", fmt.Errorf("the key of the context %s is not a single line; check its file or its command", name)
	}
	return key, nil
}

// commandOutput runs a line in the user's shell. The command may ask on the terminal, for example for a
// password.
func commandOutput(ctx context.Context, app *cli.App, line string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	if runtime.GOOS == "windows" {
		cmd = exec.CommandContext(ctx, "cmd", "/C", line)
	}
	cmd.Env, cmd.Stderr = app.Environ, app.Stderr
	if cli.IsTerminal(app.Stdin) {
		cmd.Stdin = app.Stdin
	}
	return cmd.Output()
}
