// Command types writes the types of the API, which api/openapi.json describes, for the pages and for the
// clients in other folders:
//
//	types OPENAPI ROOT
//
// ROOT is the root of the repository, or a copy of the folders web, client and sdk. It also writes the
// client for synchronous Python, which follows from the asynchronous one.
package main

import (
	"errors"
	"fmt"
	"go/format"
	"os"
	"path/filepath"
	"slices"
)

// pageCalls are the calls of the pages.
var pageCalls = []string{"listBoards", "getBoard", "listScores", "getUserScore", "listSeasons", "getSeason", "getStats", "listUserScores", "listUserResults", "watchScores"}

// adminCalls are the calls of the page for administrators.
var adminCalls = []string{"listBoards", "getBoard", "createBoard", "updateBoard", "listDeadLetters", "getDeadLetter", "replayDeadLetters", "listSeasons", "endSeason", "getStats", "searchUsers", "listUserScores",
	"listUserResults", "correctResult", "retractResult", "getProfile", "putProfile", "deleteProfile", "banUser", "unbanUser", "eraseUser", "listBans",
	"listMatches", "getMatch", "voidMatch", "restoreMatch", "createKey", "listKeys", "revokeKey", "listActs"}

// clientCalls are the calls for which the clients have methods.
var clientCalls = append(slices.Clone(pageCalls), "submitScore", "batchSubmitScores", "batchSubmitResults", "getResult", "correctResult",
	"retractResult", "lookupScores", "searchUsers", "getProfile", "putProfile")

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "types:", err)
		os.Exit(1)
	}
}

func run(openapi, root string) error {
	doc, err := read(openapi)
	if err != nil {
		return err
	}
	page, err := doc.api(pageCalls, false)
	if err != nil {
		return err
	}
	admin, err := doc.api(adminCalls, true)
	if err != nil {
		return err
	}
	client, err := doc.api(clientCalls, true)
	if err != nil {
		return err
	}
	goSource, err := format.Source(client.goTypes())
	if err != nil {
		return err
	}
	python := filepath.Join(root, "sdk", "python", "src", "leaderboard_client")
	async, err := os.ReadFile(filepath.Join(python, "_async.py"))
	if err != nil {
		return err
	}
	errs := []error{
		os.WriteFile(filepath.Join(python, "types.py"), client.pythonTypes(), 0o644),
		os.WriteFile(filepath.Join(python, "_sync.py"), synchronous(async), 0o644),
	}
	for name, text := range map[string][]byte{
		"web/src/api.gen.ts":         page.pageTypes(),
		"web/src/admin/types.gen.ts": admin.pageTypes(),
		"client/types.gen.go":        goSource,

		"sdk/typescript/src/types.gen.ts": client.clientTypes(),
	} {
		errs = append(errs, os.WriteFile(filepath.Join(root, filepath.FromSlash(name)), text, 0o644))
	}
	return errors.Join(errs...)
}
