package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// An example is a request of docs/api.md, with the server's answer.
type example struct {
	Method string `json:"method"`
	Path   string `json:"path"`
	Body   any    `json:"body,omitempty"`
	Status int    `json:"status"`
	Answer any    `json:"answer,omitempty"` // absent for streams and long answers

	values url.Values // the parameters of the path and the query
	used   bool
}

type examples []*example

func readExamples(file string) (examples, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var list examples
	err = json.Unmarshal(data, &list)
	return list, err
}

// of returns the examples of a route.
func (list examples) of(r *route) (found []*example) {
	pattern := regexp.MustCompile("^" + pathParameter.ReplaceAllString(r.path, "([^/:]+)") + "$")
	for _, e := range list {
		path, query, _ := strings.Cut(e.Path, "?")
		m := pattern.FindStringSubmatch(path)
		if m == nil || !strings.EqualFold(e.Method, r.verb) {
			continue
		}
		e.used = true
		values, _ := url.ParseQuery(query)
		for i, name := range r.inPath {
			value, _ := url.PathUnescape(m[i+1])
			values.Set(name, value)
		}
		e.values = values
		found = append(found, e)
	}
	return found
}

func (list examples) unused() (paths []string) {
	for _, e := range list {
		if !e.used {
			paths = append(paths, e.Method+" "+e.Path)
		}
	}
	return paths
}

// parameter returns the value of a parameter that has the type kind in JSON.
func (e *example) parameter(name string, kind any) (any, bool) {
	values := e.values[name]
	if len(values) == 0 {
		return nil, false
	}
	switch kind {
	case "integer":
		n, err := strconv.Atoi(values[0])
		return n, err == nil
	case "number":
		f, err := strconv.ParseFloat(values[0], 64)
		return f, err == nil
	case "boolean":
		return values[0] == "true", true
	case "array":
		return values, true
	}
	return values[0], true
}

// valid returns the body, unless the server refused it.
func (e *example) valid() any {
	if e.Status == http.StatusBadRequest {
		return nil
	}
	return e.Body
}

// fits reports whether a value matches the patterns of a schema. In an example of a batch, the server may
// refuse a part that does not.
func (g *generator) fits(s object, v any) bool {
	if name, ok := s["$ref"].(string); ok {
		s = g.schemas[strings.TrimPrefix(name, "#/components/schemas/")].(object)
	}
	switch v := v.(type) {
	case map[string]any:
		properties, _ := s["properties"].(object)
		for name, inner := range v {
			if p, ok := properties[name].(object); ok && !g.fits(p, inner) {
				return false
			}
		}
	case []any:
		items, ok := s["items"].(object)
		return !ok || !slices.ContainsFunc(v, func(inner any) bool { return !g.fits(items, inner) })
	case string:
		pattern, ok := s["pattern"].(string)
		return !ok || regexp.MustCompile(pattern).MatchString(v)
	}
	return true
}

func (e *example) success() any {
	if e.Status == http.StatusOK {
		return e.Answer
	}
	return nil
}

func (e *example) failure(status int) any {
	if e.Status == status {
		return e.Answer
	}
	return nil
}

// examplesOf returns the parts of examples by name. The summary of an example is its request.
func examplesOf(list []*example, part func(*example) any) object {
	named := object{}
	for i, e := range list {
		if v := part(e); v != nil {
			summary := e.Method + " " + e.Path
			if !slices.ContainsFunc(list[:i], func(other *example) bool { return fmt.Sprint(part(other)) == fmt.Sprint(v) }) {
				named["example"+strconv.Itoa(i+1)] = object{"summary": summary, "value": v}
			}
		}
	}
	return named
}
