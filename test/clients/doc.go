// Package clients tests the clients in the folders client and sdk with one suite, testdata/suite.json. Each
// client makes the calls of the suite to a real server, through a proxy that breaks connections
// and answers with errors as the suite demands.
package clients
