package config

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/open-leaderboard/leaderboard/internal/secret"
)

// EnvPrefix begins the environment variable of every setting.
const EnvPrefix = "LEADERBOARD_"

// Setting is one field of a [Config], with its names.
type Setting struct {
	Key  string // in the file: tls.cert
	Env  string // in the environment: LEADERBOARD_TLS_CERT
	Flag string // such as tls-cert; empty for a secret, because other users can see flags
	Unit string
	Help string

	value reflect.Value
}

// Settings returns every setting of c, in the order of the struct.
func (c *Config) Settings() []Setting { return walk(nil, "", reflect.ValueOf(c).Elem()) }

func walk(settings []Setting, prefix string, group reflect.Value) []Setting {
	for i := range group.NumField() {
		field, tag := group.Field(i), group.Type().Field(i).Tag
		key := prefix + tag.Get("key")
		if _, ok := field.Addr().Interface().(encoding.TextUnmarshaler); field.Kind() == reflect.Struct && !ok {
			settings = walk(settings, key+".", field)
			continue
		}
		s := Setting{Key: key, Unit: tag.Get("unit"), Help: tag.Get("help"), value: field}
		s.Env = EnvPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
		if !s.isSecret() {
			s.Flag = strings.NewReplacer(".", "-", "_", "-").Replace(key)
		}
		settings = append(settings, s)
	}
	return settings
}

func (s Setting) isSecret() bool { return s.value.Type() == reflect.TypeFor[secret.Text]() }

// Equal reports whether s and t have equal values.
func (s Setting) Equal(t Setting) bool {
	return reflect.DeepEqual(s.value.Interface(), t.value.Interface())
}

// String returns the value in the form that flags accept. It hides secrets.
func (s Setting) String() string {
	switch v := s.value.Interface().(type) {
	case []string:
		return strings.Join(v, ",")
	case time.Duration:
		return shortDuration(v)
	default:
		return fmt.Sprint(v)
	}
}

func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// raw is a string, a []string, nil for no value, or an error about the value.
func (s Setting) set(raw any) error {
	var text string
	switch raw := raw.(type) {
	case nil:
		return errors.New("has no value")
	case error:
		return raw
	case []string:
		if s.value.Kind() != reflect.Slice {
			return errors.New("is a list, but must be a single value")
		}
		s.value.Set(reflect.ValueOf(raw))
		return nil
	case string:
		text = raw
	}
	if u, ok := s.value.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(text))
	}
	switch dst := s.value.Addr().Interface().(type) {
	case *string:
		*dst = text
		return nil
	case *[]string:
		*dst = splitList(text)
		return nil
	case *bool:
		return parse(dst, text, "true or false", strconv.ParseBool)
	case *int:
		return parse(dst, text, "a whole number", strconv.Atoi)
	case *float64:
		return parse(dst, text, "a number", func(s string) (float64, error) { return strconv.ParseFloat(s, 64) })
	case *time.Duration:
		return parse(dst, text, "a duration such as 500ms, 10s or 24h", time.ParseDuration)
	}
	panic("config: setting " + s.Key + " has an unsupported type")
}

func parse[T any](dst *T, text, want string, f func(string) (T, error)) error {
	v, err := f(text)
	if err != nil {
		return fmt.Errorf("%q is not %s", text, want)
	}
	*dst = v
	return nil
}

func splitList(text string) []string {
	var list []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}
