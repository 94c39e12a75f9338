package tidegate

// The types of this package against docs/openapi.json: a field that one of them has and the other has not
// fails this test.

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/clients/go/internal/testserver"
)

// models are the schemas of the document that this package has types for.
var models = map[string]any{
	"DecisionBody": Request{}, "LimitsBody": Limits{}, "DecisionReply": Decision{}, "PartReply": PolicyPart{},
	"RefundReply": Refunded{}, "Renewed": renewed{}, "Explanation": Explanation{},
	"PolicyExplanation": PolicyExplanation{}, "LeaseExplanation": LeaseExplanation{},
	"RequestLimitsExplanation": RequestLimits{},
	"Problem":                  Problem{}, "FieldError": FieldError{},
}

// read reads a JSON file of the repository.
func read(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testserver.Root(), file))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

func TestTypesAreThoseOfTheOpenAPIDocument(t *testing.T) {
	var document struct {
		Components struct {
			Schemas map[string]schema `json:"schemas"`
		} `json:"components"`
	}
	read(t, "docs/openapi.json", &document)
	for name, value := range models {
		known := map[string]string{}
		kind := reflect.TypeOf(value)
		for index := range kind.NumField() {
			field := kind.Field(index)
			if member, option, _ := strings.Cut(field.Tag.Get("json"), ","); member != "-" {
				known[member] = jsonType(field.Type) + map[bool]string{true: ", optional"}[option == "omitempty"]
			}
		}
		stated := map[string]string{}
		for member, property := range document.Components.Schemas[name].Properties {
			stated[member] = property.kind()
			// What may be left out, and is always sent.
			sent := name == "DecisionBody" && member == "cost"
			if !sent && !slices.Contains(document.Components.Schemas[name].Required, member) {
				stated[member] += ", optional"
			}
		}
		if len(stated) == 0 || !reflect.DeepEqual(known, stated) {
			t.Errorf("%s: this package knows %v, docs/openapi.json states %v", name, known, stated)
		}
	}
}

func TestOperationsAreThoseOfTheOpenAPIDocument(t *testing.T) {
	var document struct {
		Paths      map[string]map[string]map[string]any `json:"paths"`
		Components struct {
			Schemas map[string]any `json:"schemas"`
		} `json:"components"`
	}
	read(t, "docs/openapi.json", &document)
	var own struct {
		API map[string]struct {
			Parameters []string `json:"parameters"`
			NotOffered []string `json:"not_offered"`
		} `json:"api"`
	}
	read(t, "clients/conformance.json", &own)
	if len(own.API) == 0 {
		t.Fatal("conformance.json names no operation")
	}
	found := map[string]bool{}
	for name, known := range own.API {
		method, path, _ := strings.Cut(name, " ")
		operation := document.Paths[path][method]
		if operation == nil {
			t.Fatalf("docs/openapi.json has no %s", name)
		}
		stated := []string{}
		parameters, _ := operation["parameters"].([]any) // None where the operation takes none.
		for _, parameter := range parameters {
			stated = append(stated, parameter.(map[string]any)["name"].(string))
		}
		knows := append(known.Parameters, known.NotOffered...)
		slices.Sort(stated)
		slices.Sort(knows)
		if !slices.Equal(stated, knows) {
			t.Errorf("%s: conformance.json has the parameters %v, docs/openapi.json states %v", name, knows, stated)
		}
		refer(operation, document.Components.Schemas, found)
	}
	for name := range found {
		_, fields := document.Components.Schemas[name].(map[string]any)["properties"]
		if _, known := models[name]; fields && !known {
			t.Errorf("this package has no type for the schema %s", name)
		}
	}
	for name := range models {
		if !found[name] {
			t.Errorf("no operation refers to the schema %s", name)
		}
	}
}

// refer collects the names of the schemas that a part of the document refers to, directly or through others.
func refer(part any, schemas map[string]any, found map[string]bool) {
	switch part := part.(type) {
	case []any:
		for _, inner := range part {
			refer(inner, schemas, found)
		}
	case map[string]any:
		reference, _ := part["$ref"].(string)
		if name := reference[strings.LastIndex(reference, "/")+1:]; name != "" && !found[name] {
			found[name] = true
			refer(schemas[name], schemas, found)
		}
		for _, inner := range part {
			refer(inner, schemas, found)
		}
	}
}

type schema struct {
	Properties map[string]schema `json:"properties"`
	Required   []string          `json:"required"`
	Type       any               `json:"type"`
	Ref        string            `json:"$ref"`
	Items      *schema           `json:"items"`
	// Values are the schema of an object's members that have no name of their own.
	Values any `json:"additionalProperties"`
}

// kind is a schema in words, with what is in a list or an object.
func (schema schema) kind() string {
	values, _ := schema.Values.(map[string]any)
	switch {
	case schema.Ref != "":
		return schema.Ref[strings.LastIndex(schema.Ref, "/")+1:]
	case schema.Items != nil:
		return "array of " + schema.Items.kind()
	case values["type"] != nil:
		return "object of " + values["type"].(string)
	}
	kinds, several := schema.Type.([]any)
	if !several {
		return fmt.Sprint(schema.Type)
	}
	// A type, or null.
	return fmt.Sprint(kinds[slices.IndexFunc(kinds, func(kind any) bool { return kind != "null" })])
}

// jsonType is a type in the words of its schema.
func jsonType(kind reflect.Type) string {
	for name, model := range models {
		if reflect.TypeOf(model) == kind {
			return name
		}
	}
	switch kind.Kind() {
	case reflect.Pointer:
		return jsonType(kind.Elem())
	case reflect.Bool:
		return "boolean"
	case reflect.String:
		return "string"
	case reflect.Int, reflect.Int64:
		return "integer"
	case reflect.Slice:
		return "array of " + jsonType(kind.Elem())
	case reflect.Map:
		if kind.Elem().Kind() == reflect.Interface {
			return "object"
		}
		return "object of " + jsonType(kind.Elem())
	}
	return kind.String()
}

func TestVersionIsTheServers(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(testserver.Root(), "Cargo.toml"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "\nversion = \""+Version+"\"\n") {
		t.Errorf("this module says %s; Cargo.toml has another version", Version)
	}
}

func TestBoundedValues(t *testing.T) {
	for _, item := range testserver.Document(t)["bounded"].([]any) {
		pair := item.(testserver.Object)
		if sent := Bounded(testserver.Text(pair["value"])); sent != testserver.Text(pair["sent"]) {
			t.Errorf("%v is sent as %s", pair["value"], sent)
		}
	}
	one, other := Bounded("a\xff"), Bounded("a\xfe")
	if one == other || !strings.HasPrefix(one, "a\uFFFD~") {
		t.Errorf("values that are not UTF-8 become %q and %q", one, other)
	}
	if long := Bounded(strings.Repeat("\xff", 600)); len(long) > 512 {
		t.Errorf("a long value that is not UTF-8 has %d bytes", len(long))
	}
}
