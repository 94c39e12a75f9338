module github.com/tidegate/tidegate/clients/go/internal/migration

go 1.26.0

require (
	github.com/tidegate/tidegate/clients/go v0.1.0
	golang.org/x/time v0.16.0
)

replace github.com/tidegate/tidegate/clients/go => ../..
