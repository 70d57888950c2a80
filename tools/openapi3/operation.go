package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// headers are the headers of answers.
var headers = object{
	"RetryAfter":      object{"description": "The number of seconds to wait before a retry.", "required": true, "schema": object{"type": "integer", "minimum": 1}},
	"WWWAuthenticate": object{"description": "The kind of credentials: Bearer.", "required": true, "schema": object{"type": "string"}},
	"RequestID":       object{"description": "The X-Request-Id of the request, or an id that the server chose.", "required": true, "schema": object{"type": "string"}},
}

// A route is an RPC at one of its paths.
type route struct {
	protoreflect.MethodDescriptor
	door, http   protoreflect.Message
	verb, path   string
	id           string
	inPath       []string
	body         string
	defaultBoard bool // the path is that of the default board
}

var pathParameter = regexp.MustCompile(`\{([\w.]+)\}`)

func (g *generator) addMethod(paths object, md protoreflect.MethodDescriptor) {
	rule := extension(md, "google.api.http")
	if !rule.IsValid() {
		return
	}
	rules := []protoreflect.Message{rule.Message()}
	more := member(rule.Message(), "additional_bindings").List()
	for i := range more.Len() {
		rules = append(rules, more.Get(i).Message())
	}
	for _, rule := range rules {
		r := newRoute(md, rule, len(rules) > 1)
		if paths[r.path] == nil {
			paths[r.path] = object{}
		}
		paths[r.path].(object)[r.verb] = g.operation(r)
	}
}

func newRoute(md protoreflect.MethodDescriptor, rule protoreflect.Message, several bool) *route {
	r := &route{MethodDescriptor: md, door: extension(md, apiPackage+"door").Message(), http: rule, body: member(rule, "body").String()}
	for _, verb := range []string{"get", "post", "put", "patch", "delete"} {
		if path := member(rule, protoreflect.Name(verb)).String(); path != "" {
			r.verb, r.path = verb, strings.ReplaceAll(path, "{board.board_id}", "{board}")
		}
	}
	for _, m := range pathParameter.FindAllStringSubmatch(r.path, -1) {
		r.inPath = append(r.inPath, m[1])
	}
	r.id = strings.ToLower(string(md.Name()[:1])) + string(md.Name()[1:])
	if r.defaultBoard = several && !slices.Contains(r.inPath, "board"); r.defaultBoard {
		r.id += "OnDefaultBoard"
	}
	return r
}

func (g *generator) operation(r *route) object {
	text := comment(r)
	summary, _, _ := strings.Cut(text, ". ")
	if r.defaultBoard {
		summary = strings.TrimSuffix(summary, ".") + ", on the default board"
		text += " This path is short for the one of the board default."
	}
	text += " The call needs the scope " + strings.ToLower(string(enumName(r.door, "scope"))) + "."
	examples := g.examples.of(r)
	operation := object{
		"operationId": r.id, "summary": strings.TrimSuffix(summary, "."), "description": text, "tags": []any{tagName(enumName(r.door, "tag"))},
		"security":  []any{object{"key": []any{}}},
		"responses": g.responses(r, examples),
	}
	if parameters := g.routeParameters(r, examples); len(parameters) > 0 {
		operation["parameters"] = parameters
	}
	if r.body != "" {
		operation["requestBody"] = g.requestBody(r, examples)
	}
	return operation
}

// routeParameters returns the parameters of the path and the query, as in route.query of package server. They are the
// fields that are neither messages nor, if the route has a body, lists.
func (g *generator) routeParameters(r *route, examples []*example) []any {
	var list []any
	fields := r.Input().Fields()
	for _, name := range r.inPath {
		fd := fields.ByName(protoreflect.Name(name))
		if fd == nil || fd.Message() != nil { // board.board_id
			fd = g.parameters[protoreflect.Name(name)]
		}
		schema := g.scalar(fd, input)
		g.limit(schema, fd, input)
		schema["minLength"] = 1
		list = append(list, g.parameter(fd, "path", schema, examples))
	}
	if r.body == "*" {
		return list
	}
	for i := range fields.Len() {
		fd := fields.Get(i)
		name := string(fd.Name())
		if fd.Message() != nil || name == "divisions" || fd.IsList() && r.body != "" || slices.Contains(r.inPath, name) || name == "board" && r.defaultBoard {
			continue
		}
		schema := g.value(fd, input)
		g.limit(schema, fd, input)
		if name == "division" && fields.ByName("divisions") != nil {
			schema = object{"type": "array", "items": schema}
		}
		list = append(list, g.parameter(fd, "query", schema, examples))
	}
	return list
}

func (g *generator) parameter(fd protoreflect.FieldDescriptor, in string, schema object, examples []*example) object {
	text := g.describe(fd, input)
	if text == "" {
		panic(fmt.Sprintf("%s is a parameter without a comment", fd.FullName()))
	}
	p := object{"name": string(fd.Name()), "in": in, "description": text, "schema": schema}
	if in == "path" {
		p["required"] = true
	}
	for _, e := range examples {
		if v, ok := e.parameter(string(fd.Name()), schema["type"]); ok {
			p["example"] = v
			break
		}
	}
	return p
}

func (g *generator) requestBody(r *route, examples []*example) object {
	md, s, omit := r.Input(), input, r.inPath
	if r.body != "*" {
		omit = nil
		md = md.Fields().ByName(protoreflect.Name(r.body)).Message()
	}
	if r.verb == "patch" && r.body != "*" {
		s = change
	}
	if g.hasBoard(r) {
		omit = append(slices.Clone(omit), "board")
	}
	if s == change {
		omit = append(omit, "board_id")
	}
	schema := g.message(md, s, omit...)
	media := object{"schema": schema}
	valid := func(e *example) any {
		if body := e.valid(); g.fits(schema, body) {
			return body
		}
		return nil
	}
	if named := examplesOf(examples, valid); len(named) > 0 {
		media["examples"] = named
	}
	component := g.schemas[strings.TrimPrefix(schema["$ref"].(string), "#/components/schemas/")].(object)
	size := cmp.Or(int(member(r.door, "max_bytes").Int()), 64<<10)
	return object{
		"required":    component["required"] != nil || s == change,
		"description": fmt.Sprintf("At most %d KiB.", size>>10),
		"content":     object{"application/json": media},
	}
}

// hasBoard reports whether another path of the method has the board.
func (g *generator) hasBoard(r *route) bool {
	return r.defaultBoard || slices.Contains(r.inPath, "board")
}

func (g *generator) responses(r *route, examples []*example) object {
	responses := object{}
	ok := object{"description": cmp.Or(comment(r.Output()), "The answer."), "headers": object{"X-Request-Id": header("RequestID")}}
	responses["200"] = ok
	md := r.Output()
	if field := member(r.http, "response_body").String(); field != "" {
		md = md.Fields().ByName(protoreflect.Name(field)).Message()
	}
	named := examplesOf(examples, (*example).success)
	switch {
	case member(r.door, "watch").Bool():
		ok["description"] = "Server-sent events. The data of each event is a Leaderboard as JSON. The event reconnect, or error, ends the stream; its data has an Error in the field error."
		ok["content"] = object{"text/event-stream": object{"schema": object{"type": "string"}, "x-event-data": g.message(md.Fields().ByName("data").Message(), answer)}}
	case r.IsStreamingServer():
		ok["description"] = comment(r.Output()) + " One JSON object per line. The field error of the last line has an Error if the call failed."
		ok["content"] = object{"application/x-ndjson": object{"schema": object{"type": "string"}, "x-line": g.message(md, answer)}}
	default:
		ok["content"] = jsonContent(g.message(md, answer), named)
	}
	if hasOutcome(r.Output()) {
		responses["202"] = object{
			"description": "A result is durable, and will be applied later: its status is ACCEPTED.",
			"headers":     ok["headers"], "content": jsonContent(g.message(md, answer), nil),
		}
	}
	for status, reasons := range g.reasonsOf(r) {
		failed := examplesOf(examples, func(e *example) any { return e.failure(status) })
		responses[strconv.Itoa(status)] = errorResponse(status, reasons, failed)
	}
	return responses
}

// hasOutcome reports whether an answer can have the status ACCEPTED, as setStatus of package server does.
func hasOutcome(md protoreflect.MessageDescriptor) bool {
	status, outcomes := md.Fields().ByName("status"), md.Fields().ByName("outcomes")
	return outcomes != nil || status != nil && status.Enum() != nil && status.Enum().FullName() == apiPackage+"Outcome.Status"
}

func jsonContent(schema object, named object) object {
	media := object{"schema": schema}
	if len(named) > 0 {
		media["examples"] = named
	}
	return object{"application/json": media}
}

func header(name string) object { return object{"$ref": "#/components/headers/" + name} }

func errorResponse(status int, reasons []string, named object) object {
	res := object{"description": strings.Join(reasons, "\n"), "content": jsonContent(ref("Error"), named)}
	switch status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		res["headers"] = object{"Retry-After": header("RetryAfter")}
	case http.StatusUnauthorized:
		res["headers"] = object{"WWW-Authenticate": header("WWWAuthenticate")}
	}
	return res
}

// reasonsOf returns the reasons for which a route can fail, with their texts, by HTTP status.
func (g *generator) reasonsOf(r *route) map[int][]string {
	g.message(g.reasons.Get(0).Parent().Parent().(protoreflect.MessageDescriptor), answer) // Error
	named := map[protoreflect.EnumNumber]bool{}
	list := member(r.door, "reasons").List()
	for i := range list.Len() {
		named[list.Get(i).Enum()] = true
	}
	reach := enumName(r.door, "reach")
	fields := r.Input().Fields()
	fails := map[protoreflect.Name]bool{
		"EVERY": true, "BOARD": slices.Contains(r.inPath, "board") || reach == "DEFAULT_BOARD" || reach == "GIVEN_BOARD",
		"BODY": r.body != "", "PATH": len(r.inPath) > 0, "WRITE": r.verb != "get", "WATCH": member(r.door, "watch").Bool(),
		"SEASON": fields.ByName("season") != nil, "METHOD": fields.ByName("method") != nil,
	}
	byStatus := map[int][]string{}
	for i := range g.reasons.Len() {
		v := g.reasons.Get(i)
		cause := extension(v, apiPackage+"cause")
		if !cause.IsValid() {
			continue
		}
		if fails[enumName(cause.Message(), "calls")] || named[v.Number()] {
			status := int(member(cause.Message(), "status").Int())
			byStatus[status] = append(byStatus[status], fmt.Sprintf("- `%s`: %s", v.Name(), comment(v)))
		}
	}
	return byStatus
}

// shareResponses makes the most frequent response of each error status a component.
func (g *generator) shareResponses(paths object) object {
	type use struct {
		responses object
		status    string
	}
	uses := map[string][]use{}
	most := map[string]string{}
	for _, path := range paths {
		for _, operation := range path.(object) {
			responses := operation.(object)["responses"].(object)
			for status, res := range responses {
				if status < "400" {
					continue
				}
				text, _ := json.Marshal(res)
				key := status + string(text)
				uses[key] = append(uses[key], use{responses, status})
				if best := most[status]; best == "" || len(uses[key]) > len(uses[best]) || len(uses[key]) == len(uses[best]) && key < best {
					most[status] = key
				}
			}
		}
	}
	shared := object{}
	for status, key := range most {
		if len(uses[key]) < 2 {
			continue
		}
		code, _ := strconv.Atoi(status)
		name := strings.ReplaceAll(http.StatusText(code), " ", "")
		for _, u := range uses[key] {
			shared[name] = u.responses[status]
		}
		for _, u := range uses[key] {
			u.responses[status] = object{"$ref": "#/components/responses/" + name}
		}
	}
	return object{"responses": shared}
}
