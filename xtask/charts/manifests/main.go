// Command manifests reads Kubernetes manifests as the API server would with strict field validation: it refuses fields that
// a kind does not have, fields that are there twice, and values of another type. Kinds of Kubernetes itself are known, no
// others.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

func main() {
	for _, path := range os.Args[1:] {
		if err := check(path); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			os.Exit(1)
		}
	}
}

func check(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewYAMLReader(bufio.NewReader(file))
	known := 0
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			fmt.Printf("%s: %d manifests in order\n", path, known)
			return nil
		}
		if err != nil {
			return err
		}
		_, kind, err := decoder.Decode(document, nil, nil)
		switch {
		case err == nil:
			known++
		case runtime.IsNotRegisteredError(err):
			fmt.Printf("%s: %v is of another API, and not read\n", path, kind)
		default:
			return fmt.Errorf("%v: %w", kind, err)
		}
	}
}
