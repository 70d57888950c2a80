package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
)

// ClientEnv are the variables that the client commands read, and that are no
// settings of a server: where it is, the caller's key, and who signed its certificate.
var ClientEnv = []string{EnvPrefix + "SERVER", EnvPrefix + "KEY", EnvPrefix + "CA"}

// FileEnv names the file, as the flag --config does.
const FileEnv = EnvPrefix + "CONFIG"

// foreign begins names that others give to variables: Kubernetes, to those of a
// service called leaderboard, and the project's own tests.
var foreign = []string{EnvPrefix + "SERVICE_", EnvPrefix + "PORT", EnvPrefix + "TEST_", EnvPrefix + "DATASETS"}

// AddFlags adds a flag for each setting, and --config.
func AddFlags(fs *pflag.FlagSet) {
	defaults := Default()
	fs.String("config", "", "`file` of settings in YAML ($"+FileEnv+")")
	for _, s := range defaults.Settings() {
		if s.Flag == "" {
			continue
		}
		f := &pflag.Flag{Name: s.Flag, Usage: s.usage(), Value: &flagValue{text: s.String(), unit: s.Unit}}
		if f.DefValue = s.String(); s.value.Kind() == reflect.Bool {
			f.NoOptDefVal = "true"
			f.Value.(*flagValue).unit = "bool"
		}
		fs.AddFlag(f)
	}
}

// usage is the help of a flag: the first sentence of the setting's, and what the
// values are if the name of the flag's value cannot say it.
func (s Setting) usage() string {
	first, _, _ := strings.Cut(strings.TrimSuffix(s.Help, "."), ". ")
	if (&flagValue{unit: s.Unit}).Type() == "value" {
		first += ": " + s.Unit
	}
	return first
}

// flagValue keeps the text of a flag; [Load] reads it with the other sources, so
// that all faults are reported together.
type flagValue struct{ text, unit string }

func (v *flagValue) String() string     { return v.text }
func (v *flagValue) Set(s string) error { v.text = s; return nil }
func (v *flagValue) Type() string {
	if strings.Contains(v.unit, ",") || strings.Contains(v.unit, " or ") && v.unit != "true or false" {
		return "value" // one of those that the help lists
	}
	return strings.ReplaceAll(v.unit, " ", "-")
}

// Effective is a configuration with the source of each of its values.
type Effective struct {
	Config
	sources map[string]string // by key
}

// Source says where the value of a key comes from: "default", the name of a
// file, of a variable in the environment, or of a flag.
func (e *Effective) Source(key string) string {
	if s, ok := e.sources[key]; ok {
		return s
	}
	return "default"
}

// Load puts the settings together: the defaults, then the file, then the
// environment, then the flags of fs that were given, each over the one before.
// The error joins every fault: a setting that nothing knows, a value that cannot
// be read, and all that [Config.Validate] finds.
func Load(fs *pflag.FlagSet, environ []string) (Effective, error) {
	l := loader{Effective: Effective{Config: Default(), sources: map[string]string{}}}
	l.settings = l.Config.Settings()

	path, _ := fs.GetString("config")
	if path == "" {
		path = lookup(environ, FileEnv)
	}
	if path != "" {
		l.file(path)
	}
	l.environment(environ)
	l.flags(fs)
	if len(l.errs) == 0 { // or faults of values that were not read would follow
		l.errs = append(l.errs, l.name(l.Validate()))
	}
	return l.Effective, errors.Join(l.errs...)
}

type loader struct {
	Effective
	settings []Setting
	errs     []error
}

// layer takes values by key, of which name is the source.
func (l *loader) layer(k *koanf.Koanf, name func(Setting) string) {
	for _, s := range l.settings {
		if !k.Exists(s.Key) {
			continue
		}
		l.sources[s.Key] = name(s)
		if err := s.set(k.Get(s.Key)); err != nil {
			l.errs = append(l.errs, fmt.Errorf("%s (%s): %w", s.Key, name(s), err))
		}
	}
}

// name adds the sources to faults of values that did not come by default.
func (l *loader) name(err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	var errs []error
	for _, e := range joined.Unwrap() {
		key, rest, _ := strings.Cut(e.Error(), ": ")
		if source, ok := l.sources[key]; ok {
			e = fmt.Errorf("%s (%s): %s", key, source, rest)
		}
		errs = append(errs, e)
	}
	return errors.Join(errs...)
}

func (l *loader) file(path string) {
	k := koanf.New(".")
	if err := k.Load(file.Provider(path), yaml.Parser()); err != nil {
		l.errs = append(l.errs, fmt.Errorf("config file %s: %w", path, err))
		return
	}
	keys := make([]string, len(l.settings))
	for i, s := range l.settings {
		keys[i] = s.Key
	}
	for _, key := range k.Keys() {
		if _, isMap := k.Get(key).(map[string]any); isMap && l.isGroup(key) {
			continue // a group without a setting
		}
		if !slices.Contains(keys, key) {
			l.errs = append(l.errs, fmt.Errorf("%s (%s): no such setting; did you mean %s?", key, path, nearest(key, keys)))
		}
	}
	l.layer(k, func(Setting) string { return path })
}

func (l *loader) isGroup(key string) bool {
	return slices.ContainsFunc(l.settings, func(s Setting) bool { return strings.HasPrefix(s.Key, key+".") })
}

func (l *loader) environment(environ []string) {
	names := append([]string{FileEnv}, ClientEnv...)
	keys := make(map[string]string, len(l.settings))
	for _, s := range l.settings {
		keys[s.Env] = s.Key
		names = append(names, s.Env)
	}
	k := koanf.New(".")
	provider := env.Provider(".", env.Opt{
		Prefix:      EnvPrefix,
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(name, value string) (string, any) {
			if !slices.Contains(names, name) && !slices.ContainsFunc(foreign, func(p string) bool { return strings.HasPrefix(name, p) }) {
				l.errs = append(l.errs, fmt.Errorf("%s (environment): no such setting; did you mean %s?", name, nearest(name, names)))
			}
			if value == "" {
				return "", nil // as good as not set
			}
			return keys[name], value
		},
	})
	if err := k.Load(provider, nil); err != nil {
		l.errs = append(l.errs, fmt.Errorf("environment: %w", err))
	}
	l.layer(k, func(s Setting) string { return s.Env })
}

func (l *loader) flags(fs *pflag.FlagSet) {
	keys := make(map[string]string, len(l.settings))
	for _, s := range l.settings {
		keys[s.Flag] = s.Key
	}
	k := koanf.New(".")
	provider := posflag.ProviderWithFlag(fs, ".", nil, func(f *pflag.Flag) (string, any) {
		return keys[f.Name], f.Value.String()
	})
	if err := k.Load(provider, nil); err != nil {
		l.errs = append(l.errs, fmt.Errorf("flags: %w", err))
	}
	l.layer(k, func(s Setting) string { return "--" + s.Flag })
}

func lookup(environ []string, name string) string {
	for _, e := range environ {
		if value, ok := strings.CutPrefix(e, name+"="); ok {
			return value
		}
	}
	return ""
}

// nearest returns the candidate that takes the fewest edits to make of name.
func nearest(name string, candidates []string) string {
	return slices.MinFunc(candidates, func(x, y string) int { return edits(name, x) - edits(name, y) })
}

// edits counts the letters to insert, delete or replace to get from a to b.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := min(row[j], row[j+1]) + 1
			if a[i] == b[j] {
				d = min(d, diagonal)
			} else {
				d = min(d, diagonal+1)
			}
			diagonal, row[j+1] = row[j+1], d
		}
	}
	return row[len(b)]
}
