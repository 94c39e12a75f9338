// Command schemas makes JSON Schemas of Kubernetes' OpenAPI document (JSON) and of definitions of custom resources (YAML), a
// file for each kind, under the names that kubeconform looks for: statefulset-apps-v1.json.
//
//	schemas FOLDER swagger.json servicemonitors.yaml ...
//
// They are strict: an object has the fields that its type has and no others. What is a number or a word (IntOrString,
// Quantity) is said in the format of a string in OpenAPI, and is written out. Rules of validation in CEL are left out: a
// schema cannot say them.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

type schema = map[string]any

const (
	definitionsAt = "#/definitions/"
	quantity      = "io.k8s.apimachinery.pkg.api.resource.Quantity"
	kinds         = "x-kubernetes-group-version-kind"
	keepsUnknown  = "x-kubernetes-preserve-unknown-fields"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "schemas FOLDER swagger.json servicemonitors.yaml ...")
		os.Exit(2)
	}
	made := 0
	for _, path := range os.Args[2:] {
		count, err := convert(os.Args[1], path)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			os.Exit(1)
		}
		made += count
	}
	fmt.Printf("%d schemas in %s\n", made, os.Args[1])
}

func convert(folder, path string) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	var document schema
	if err := yaml.Unmarshal(text, &document); err != nil {
		return 0, err
	}
	if document["kind"] == "CustomResourceDefinition" {
		return customResource(folder, document)
	}
	definitions, ok := document["definitions"].(schema)
	if !ok {
		return 0, fmt.Errorf("neither an OpenAPI document nor the definition of a custom resource")
	}
	return kubernetes(folder, definitions)
}

// kubernetes writes the kinds of an OpenAPI document.
func kubernetes(folder string, definitions schema) (int, error) {
	for name, definition := range definitions {
		if name == quantity {
			definitions[name] = schema{"type": []string{"string", "number"}}
		} else {
			closed(definition)
		}
	}
	made := 0
	for name := range definitions {
		definition := definitions[name].(schema)
		list, _ := definition[kinds].([]any)
		// Some are of every group: options of a call, nothing that is applied.
		if len(list) != 1 {
			continue
		}
		needed := schema{}
		collect(definition, definitions, needed)
		one := list[0].(schema)
		group, version := one["group"].(string), one["version"].(string)
		if err := write(folder, one["kind"].(string), group, version, definition, needed); err != nil {
			return made, err
		}
		made++
	}
	return made, nil
}

// customResource writes a kind in all its versions.
func customResource(folder string, document schema) (int, error) {
	spec := document["spec"].(schema)
	kind := spec["names"].(schema)["kind"].(string)
	made := 0
	for _, version := range spec["versions"].([]any) {
		version := version.(schema)
		definition := version["schema"].(schema)["openAPIV3Schema"].(schema)
		closed(definition)
		if err := write(folder, kind, spec["group"].(string), version["name"].(string), definition, schema{}); err != nil {
			return made, err
		}
		made++
	}
	return made, nil
}

// closed has every object refuse fields that it does not know, and takes numbers where words are numbers, too.
func closed(part any) {
	switch part := part.(type) {
	case schema:
		for _, inner := range part {
			closed(inner)
		}
		_, hasFields := part["properties"].(schema)
		_, hasOthers := part["additionalProperties"]
		if hasFields && !hasOthers && part[keepsUnknown] != true {
			part["additionalProperties"] = false
		}
		if part["format"] == "int-or-string" {
			delete(part, "format")
			part["type"] = []string{"integer", "string"}
		}
	case []any:
		for _, inner := range part {
			closed(inner)
		}
	}
}

// collect adds the definitions that a part refers to, and those that they refer to.
func collect(part any, definitions, needed schema) {
	switch part := part.(type) {
	case schema:
		if target, ok := part["$ref"].(string); ok {
			name := strings.TrimPrefix(target, definitionsAt)
			if _, known := needed[name]; !known {
				needed[name] = definitions[name]
				collect(definitions[name], definitions, needed)
			}
		}
		for _, inner := range part {
			collect(inner, definitions, needed)
		}
	case []any:
		for _, inner := range part {
			collect(inner, definitions, needed)
		}
	}
}

func write(folder, kind, group, version string, definition, needed schema) error {
	name := strings.ToLower(kind)
	if group != "" {
		name += "-" + strings.ToLower(strings.Split(group, ".")[0])
	}
	whole := schema{
		"$schema":     "http://json-schema.org/draft-07/schema#",
		"definitions": needed,
		"allOf": []any{
			definition,
			schema{"required": []string{"apiVersion", "kind", "metadata"}},
		},
	}
	text, err := json.Marshal(whole)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, name+"-"+strings.ToLower(version)+".json"), text, 0o644)
}
