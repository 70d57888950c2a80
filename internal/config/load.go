package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
)

// The client commands use these variables, which are not settings of a server.
var clientEnv = []string{EnvPrefix + "SERVER", EnvPrefix + "KEY", EnvPrefix + "CA", EnvPrefix + "CONTEXT", EnvPrefix + "SOURCE_PASSWORD"}

const fileEnv = EnvPrefix + "CONFIG"

// For a service called leaderboard, Kubernetes sets variables with the first two prefixes.
// The tests of this project set the others.
var ignoredPrefixes = []string{EnvPrefix + "SERVICE_", EnvPrefix + "PORT", EnvPrefix + "TEST_", EnvPrefix + "DATASETS"}

// The callers must not change the values.
var defaultSettings = sync.OnceValue(func() []Setting {
	defaults := Default()
	return defaults.Settings()
})

// AddFlags adds --config and a flag for each setting that is not secret.
func AddFlags(fs *pflag.FlagSet) {
	fs.String("config", "", "`file` of settings in YAML ($"+fileEnv+")")
	for _, s := range defaultSettings() {
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

// usage returns the first sentence of the setting's help. If the unit lists several values,
// usage adds the unit.
func (s Setting) usage() string {
	first, _, _ := strings.Cut(strings.TrimSuffix(s.Help, "."), ". ")
	if second := first[1:2]; second == strings.ToLower(second) { // not an abbreviation such as TLS
		first = strings.ToLower(first[:1]) + first[1:]
	}
	if (&flagValue{unit: s.Unit}).Type() == "value" {
		first += ": " + s.Unit
	}
	return first
}

// flagValue keeps the text of a flag. [Load] parses the texts of all sources, and reports all
// errors at once.
type flagValue struct{ text, unit string }

func (v *flagValue) String() string     { return v.text }
func (v *flagValue) Set(s string) error { v.text = s; return nil }
func (v *flagValue) Type() string {
	if strings.Contains(v.unit, ",") || strings.Contains(v.unit, " or ") {
		return "value" // the help lists the values
	}
	return strings.ReplaceAll(v.unit, " ", "-")
}

// Effective is a configuration with the source of each value.
type Effective struct {
	Config
	sources map[string]string // by key

	// File is the path of the configuration file, or empty. FileSecrets are the keys of the
	// secrets in it.
	File        string
	FileSecrets []string
}

// Source returns the source of a setting's value: "default", or the name of a file, an
// environment variable or a flag.
func (e *Effective) Source(key string) string {
	if s, ok := e.sources[key]; ok {
		return s
	}
	return "default"
}

// Load returns the effective settings. The file overrides the defaults, the environment
// overrides the file, and the flags given in fs override the environment. The error joins
// all unknown settings, unreadable values, and errors of [Config.Validate]. For a group
// with an unknown setting or an unreadable value, Load omits the errors of Validate.
func Load(fs *pflag.FlagSet, environ []string) (Effective, error) {
	l := loader{Effective: Effective{Config: Default(), sources: map[string]string{}}}
	l.settings = l.Config.Settings()

	path, _ := fs.GetString("config")
	if path == "" {
		path = lookup(environ, fileEnv)
	}
	if path != "" {
		l.File = path
		if err := l.loadFile(path); err != nil {
			l.errs = append(l.errs, fmt.Errorf("config file %s: %w", path, err))
		}
	}
	l.loadEnvironment(environ)
	l.loadFlags(fs)
	l.errs = append(l.errs, l.omitFaultyGroups(l.addSources(l.Validate())))
	return l.Effective, errors.Join(l.errs...)
}

type loader struct {
	Effective
	settings []Setting
	errs     []error
}

// sourceOf returns the source of a setting's value.
func (l *loader) applyLayer(values map[string]any, sourceOf func(Setting) string) {
	for _, s := range l.settings {
		value, ok := values[s.Key]
		if !ok {
			continue
		}
		l.sources[s.Key] = sourceOf(s)
		if err := s.set(value); err != nil {
			l.errs = append(l.errs, fmt.Errorf("%s (%s): %w", s.Key, sourceOf(s), err))
		}
	}
}

func (l *loader) addSources(err error) error {
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

// omitFaultyGroups omits the errors about groups that already have an error in l. A
// misspelled or unreadable setting keeps its default, so further errors about
// its group may mislead.
func (l *loader) omitFaultyGroups(err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	group := func(err error) string {
		key, _, _ := strings.Cut(err.Error(), " (")
		key, _, _ = strings.Cut(key, ":")
		if i := slices.IndexFunc(l.settings, func(s Setting) bool { return s.Env == key }); i >= 0 {
			key = l.settings[i].Key
		}
		if group, _, ok := strings.Cut(key, "."); ok {
			return group
		}
		return key
	}
	var errs []error
	for _, e := range joined.Unwrap() {
		if !slices.ContainsFunc(l.errs, func(earlier error) bool { return group(earlier) == group(e) }) {
			errs = append(errs, e)
		}
	}
	return errors.Join(errs...)
}

func (l *loader) loadEnvironment(environ []string) {
	names := append([]string{fileEnv}, clientEnv...)
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
			if !slices.Contains(names, name) && !slices.ContainsFunc(ignoredPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
				l.errs = append(l.errs, fmt.Errorf("%s (environment): unknown setting; did you mean %s?", name, nearest(name, names)))
			}
			if value == "" {
				return "", nil // ignore an empty variable
			}
			return keys[name], value
		},
	})
	if err := k.Load(provider, nil); err != nil {
		l.errs = append(l.errs, fmt.Errorf("environment: %w", err))
	}
	l.applyLayer(k.All(), func(s Setting) string { return s.Env })
}

func (l *loader) loadFlags(fs *pflag.FlagSet) {
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
	l.applyLayer(k.All(), func(s Setting) string { return "--" + s.Flag })
}

func lookup(environ []string, name string) string {
	for _, e := range environ {
		if value, ok := strings.CutPrefix(e, name+"="); ok {
			return value
		}
	}
	return ""
}

func nearest(name string, candidates []string) string {
	return slices.MinFunc(candidates, func(x, y string) int { return editDistance(name, x) - editDistance(name, y) })
}

func editDistance(a, b string) int {
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
