// Package api contains the contract with clients: the protos, the code generated
// from the protos, and the OpenAPI description of the REST API. The packages in the
// subfolders implement the contract.
package api

import _ "embed"

// OpenAPI describes the REST API, in OpenAPI 3.1 as JSON.
//
//go:embed openapi.json
var OpenAPI []byte

// OpenAPIv2 describes the REST API, in OpenAPI 2.0 as JSON, for tools that do not read 3.1.
//
//go:embed openapi-v2.json
var OpenAPIv2 []byte

// The tools module pins the generators. Generated files are committed. Do not
// edit them by hand.
//
//go:generate ../scripts/generate.sh
