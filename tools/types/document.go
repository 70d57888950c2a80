package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

type schema struct {
	Ref         string `json:"$ref"`
	Type        any    // a name, or a list of names
	Format      string
	Minimum     *float64
	Default     any
	Description string
	Enum        []any
	Properties  map[string]*schema
	Required    []string
	Items       *schema
	AnyOf       []*schema
	Additional  json.RawMessage `json:"additionalProperties"`
}

type parameter struct {
	Name, In, Description string
	Schema                *schema
}

type content map[string]struct {
	Schema schema
	Event  schema `json:"x-event-data"`
}

type operation struct {
	OperationID string
	Summary     string
	Parameters  []parameter
	RequestBody struct{ Content content }
	Responses   map[string]struct{ Content content }
}

type document struct {
	Paths      map[string]map[string]operation
	Components struct {
		Schemas map[string]*schema
	}
}

func read(openapi string) (*document, error) {
	data, err := os.ReadFile(openapi)
	if err != nil {
		return nil, err
	}
	doc := &document{}
	return doc, json.Unmarshal(data, doc)
}

// An api is a part of a document: some operations, and the schemas that they use.
type api struct {
	operations []operation        // ordered by id
	schemas    map[string]*schema // of answers and, if withRequests is true, of bodies
	inputs     map[string]bool    // the schemas of bodies
}

func (d *document) api(ids []string, withRequests bool) (*api, error) {
	a := &api{schemas: map[string]*schema{"ErrorReason": d.Components.Schemas["ErrorReason"]}, inputs: map[string]bool{}}
	answers, bodies := map[string]bool{}, a.inputs
	for _, methods := range d.Paths {
		for _, op := range methods {
			if !slices.Contains(ids, op.OperationID) {
				continue
			}
			a.operations = append(a.operations, op)
			for _, c := range op.Responses["200"].Content {
				d.use(&c.Schema, answers)
				d.use(&c.Event, answers)
			}
			for _, c := range op.RequestBody.Content {
				d.use(&c.Schema, bodies)
			}
		}
	}
	slices.SortFunc(a.operations, func(x, y operation) int { return strings.Compare(x.OperationID, y.OperationID) })
	if len(a.operations) != len(ids) {
		return nil, fmt.Errorf("the document has %d of the operations %v", len(a.operations), ids)
	}
	for name := range answers {
		a.schemas[name] = d.Components.Schemas[name]
		delete(bodies, name)
	}
	if withRequests {
		for name := range bodies {
			a.schemas[name] = d.Components.Schemas[name]
		}
	}
	return a, nil
}

// use adds the named schemas that s mentions.
func (d *document) use(s *schema, used map[string]bool) {
	if s == nil {
		return
	}
	if name := s.name(); name != "" {
		if !used[name] {
			used[name] = true
			d.use(d.Components.Schemas[name], used)
		}
		return
	}
	d.use(s.Items, used)
	for _, p := range s.Properties {
		d.use(p, used)
	}
	for _, o := range s.AnyOf {
		d.use(o, used)
	}
}

// typeName returns ListScores for listScores.
func (op operation) typeName() string {
	return strings.ToUpper(op.OperationID[:1]) + op.OperationID[1:]
}

// query returns an object with the query parameters of op.
func (op operation) query() *schema {
	s := &schema{Type: "object", Properties: map[string]*schema{}}
	for _, p := range op.Parameters {
		if p.In == "query" {
			p.Schema.Description = p.Description
			s.Properties[p.Name] = p.Schema
		}
	}
	return s
}

func (s *schema) name() string {
	for _, o := range s.AnyOf { // a schema or null
		if o.Ref != "" {
			return o.name()
		}
	}
	return strings.TrimPrefix(s.Ref, "#/components/schemas/")
}

// kind returns the type of s, without null.
func (s *schema) kind() string {
	if list, ok := s.Type.([]any); ok {
		return list[0].(string)
	}
	kind, _ := s.Type.(string)
	return kind
}

func (s *schema) enum() (values []string) {
	for _, v := range s.Enum {
		if text, ok := v.(string); ok {
			values = append(values, text)
		}
	}
	return values
}

func (s *schema) fields() []string              { return slices.Sorted(maps.Keys(s.Properties)) }
func (s *schema) requires(property string) bool { return slices.Contains(s.Required, property) }

// additional returns the schema of the other properties of an object, or nil if they have any type.
func (s *schema) additional() *schema {
	var values schema
	if json.Unmarshal(s.Additional, &values) == nil && values.Type != nil {
		return &values
	}
	return nil
}

// comment returns the description of a schema as lines of at most about 100 characters.
func (s *schema) comment() (lines []string) {
	for paragraph := range strings.SplitSeq(s.Description, "\n") {
		line := ""
		for word := range strings.FieldsSeq(strings.TrimSpace(paragraph)) {
			if line != "" && len(line)+len(word) >= 100 {
				lines, line = append(lines, line), ""
			}
			line = strings.TrimSpace(line + " " + word)
		}
		if line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}
