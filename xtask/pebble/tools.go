//go:build tools

// Package tools pins what Pebble is built of; `cargo xtask setup` builds it.
package tools

import (
	_ "github.com/letsencrypt/pebble/v2/cmd/pebble"
	_ "github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv"
)
