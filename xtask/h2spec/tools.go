//go:build tools

// Package tools pins what h2spec is built of; `cargo xtask setup` builds it.
package tools

import _ "github.com/summerwind/h2spec/cmd/h2spec"
