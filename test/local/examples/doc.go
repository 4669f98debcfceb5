// Package examples holds what `make demo` and `make up` submit, as anybody would with kubectl.
package examples

import _ "embed"

// Team is what an administrator applies for a team: price, account, namespace, grant.
//
//go:embed team.yaml
var Team []byte

// Train is a Job that the team can pay for, TooExpensive one that it cannot.
var (
	//go:embed train.yaml
	Train []byte
	//go:embed too-expensive.yaml
	TooExpensive []byte
)
