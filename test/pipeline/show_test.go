package pipeline

import "encoding/json"

// show returns v as JSON, for a message or a comparison.
func show(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
