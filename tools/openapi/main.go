// Command openapi corrects the output of protoc-gen-openapiv2, for clients that need OpenAPI 2.0:
// package openapi3 writes the description of the REST API. It reads the first file, writes the second file, and deletes the first file:
//
//	openapi generated.swagger.json openapi-v2.json
//
// The corrections:
//
//   - The document gets a title and the authentication with a key, and loses its tags.
//   - The paths /v1/boards/{board.board_id} and /v1/boards/{board} become one path.
//   - The type of 64-bit integers becomes integer instead of string.
//   - The schema of a stream becomes the schema of its messages.
//   - The query parameter "division" becomes repeatable.
//   - Each operation gets the schema of the API's errors.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "openapi:", err)
		os.Exit(1)
	}
}

func run(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	var doc map[string]any
	if err := json.Unmarshal(data, &doc); err != nil {
		return err
	}
	doc["info"] = map[string]any{
		"title":       "Leaderboard",
		"description": "Match results in, exact ranks out. Every integer is a JSON number within ±2^53; unknown fields and parameters are errors.",
		"version":     "1",
		"license":     map[string]any{"name": "Apache-2.0"},
	}
	doc["securityDefinitions"] = map[string]any{
		"key": map[string]any{"type": "apiKey", "name": "Authorization", "in": "header", "description": "Bearer KEY, where KEY is an API key or a JSON web token"},
	}
	doc["security"] = []any{map[string]any{"key": []any{}}}
	delete(doc, "tags")
	correctIntegers(doc)
	paths := doc["paths"].(map[string]any)
	onePath(paths, "/v1/boards/{board.board_id}", "/v1/boards/{board}")
	for _, path := range paths {
		for _, operation := range path.(map[string]any) {
			describe(operation.(map[string]any))
		}
	}
	doc["definitions"].(map[string]any)["Error"] = errorSchema
	out, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(to, append(out, '\n'), 0o644); err != nil {
		return err
	}
	return os.Remove(from)
}

// errorSchema describes leaderboard.v1.Error, which the generator omits.
var errorSchema = map[string]any{
	"type": "object",
	"properties": map[string]any{
		"code":    map[string]any{"type": "integer", "format": "int32", "description": "A code of google.rpc.Code, such as 5."},
		"status":  map[string]any{"type": "string", "description": "The name of the code, such as NOT_FOUND."},
		"message": map[string]any{"type": "string", "description": "For people."},
		"details": map[string]any{
			"type":        "array",
			"description": "google.rpc.BadRequest names fields and limits, google.rpc.RetryInfo the delay before a retry, google.rpc.ErrorInfo the reason, Outcome a rejected result.",
			"items": map[string]any{
				"type":                 "object",
				"properties":           map[string]any{"@type": map[string]any{"type": "string"}},
				"additionalProperties": true,
			},
		},
	},
}

// onePath moves operations from one path to another. The paths differ only in a parameter's name.
func onePath(paths map[string]any, from, to string) {
	for method, operation := range paths[from].(map[string]any) {
		for _, parameter := range operation.(map[string]any)["parameters"].([]any) {
			if p := parameter.(map[string]any); p["in"] == "path" {
				p["name"] = "board"
			}
		}
		paths[to].(map[string]any)[method] = operation
	}
	delete(paths, from)
}

func correctIntegers(v any) {
	switch v := v.(type) {
	case map[string]any:
		if v["type"] == "string" && (v["format"] == "int64" || v["format"] == "uint64") {
			v["type"] = "integer"
		}
		for _, child := range v {
			correctIntegers(child)
		}
	case []any:
		for _, child := range v {
			correctIntegers(child)
		}
	}
}

// repeatDivision makes the query parameter "division" repeatable. It removes the query parameter
// "divisions": REST requests have a field of this name only in bodies.
func repeatDivision(operation map[string]any) {
	parameters, _ := operation["parameters"].([]any)
	for i, parameter := range parameters {
		p := parameter.(map[string]any)
		if p["in"] != "query" || p["name"] != "divisions" {
			continue
		}
		for _, other := range parameters {
			if o := other.(map[string]any); o["name"] == "division" {
				o["type"], o["items"], o["collectionFormat"] = p["type"], p["items"], p["collectionFormat"]
			}
		}
		operation["parameters"] = append(parameters[:i:i], parameters[i+1:]...)
		return
	}
}

func describe(operation map[string]any) {
	repeatDivision(operation)
	responses := operation["responses"].(map[string]any)
	responses["default"] = map[string]any{
		"description": "The error: google.rpc.Status with the name of its code.",
		"schema":      map[string]any{"$ref": "#/definitions/Error"},
	}
	ok := responses["200"].(map[string]any)
	schema, _ := ok["schema"].(map[string]any)
	title, _ := schema["title"].(string)
	if !strings.HasPrefix(title, "Stream result") {
		return
	}
	result := schema["properties"].(map[string]any)["result"]
	ok["schema"] = result
	ok["description"] = "A stream of messages, one per line."
	operation["produces"] = []any{"application/x-ndjson", "application/json"} // JSON for errors
	if operation["operationId"] == "WatchScores" {
		ok["description"] = "Server-sent events. The data of each event is the whole list."
		ok["schema"] = map[string]any{"$ref": "#/definitions/Leaderboard"}
		operation["produces"] = []any{"text/event-stream", "application/json"}
	}
}
