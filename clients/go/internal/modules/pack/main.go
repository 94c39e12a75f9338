// Command pack writes the modules into the folder that it is given, which then is a module proxy. It is run in the
// client's folder.
package main

import (
	"log"
	"os"

	tidegate "github.com/tidegate/tidegate/clients/go"
	"github.com/tidegate/tidegate/clients/go/internal/modules"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: pack FOLDER")
	}
	if err := modules.Pack(os.Args[1], ".", "v"+tidegate.Version); err != nil {
		log.Fatal(err)
	}
}
