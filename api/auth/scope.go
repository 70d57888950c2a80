package auth

import (
	"fmt"
	"strings"

	"github.com/open-leaderboard/leaderboard"
)

// Scope is what a caller may do. Each scope includes the scopes before it.
type Scope int8

// The scopes of callers.
const (
	Public Scope = iota // methods that need no credentials
	Read                // for players: read rankings
	Submit              // for game servers: submit and retract results
	Admin               // for operators: call every method
	// Nobody is required for methods without a configured scope, so that no caller can call them.
	Nobody
)

var scopeNames = [...]string{Public: "", Read: "read", Submit: "submit", Admin: "admin", Nobody: "nobody"}

func (s Scope) String() string { return scopeNames[s] }

// CheckScopes returns a [leaderboard.FieldError] if names is empty, or has a name other than
// read, submit and admin.
func CheckScopes(names []string) error {
	if len(names) == 0 {
		return &leaderboard.FieldError{Field: "scopes", Problem: "is required: one or more of read, submit and admin"}
	}
	for i, name := range names {
		if parseScope(name) == Public {
			return &leaderboard.FieldError{Field: fmt.Sprintf("scopes[%d]", i), Problem: fmt.Sprintf("%.40q is none of read, submit and admin", name)}
		}
	}
	return nil
}

// parseScope returns Public if the name is unknown.
func parseScope(name string) Scope {
	for s := Read; s <= Admin; s++ {
		if scopeNames[s] == name {
			return s
		}
	}
	return Public
}

// highestScope ignores unknown names, because a JWT may have scopes of other services.
func highestScope(names []string) Scope {
	best := Public
	for _, name := range names {
		best = max(best, parseScope(strings.TrimPrefix(name, "leaderboard:")))
	}
	return best
}
