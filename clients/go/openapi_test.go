package tidegate

// The types of this package against docs/openapi.json: a field that one of them has and the other has not
// fails this test.

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/clients/go/internal/testserver"
)

func TestTypesAreThoseOfTheOpenAPIDocument(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(testserver.Root(), "docs/openapi.json"))
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Components struct {
			Schemas map[string]schema `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]any{
		"DecisionBody": Request{}, "DecisionReply": Decision{}, "PartReply": PolicyPart{},
		"RefundReply": Refunded{}, "Renewed": renewed{}, "Explanation": Explanation{},
		"PolicyExplanation": PolicyExplanation{}, "LeaseExplanation": LeaseExplanation{},
		"Problem": Problem{}, "FieldError": FieldError{},
	} {
		known := map[string]string{}
		kind := reflect.TypeOf(value)
		for index := range kind.NumField() {
			field := kind.Field(index)
			if member, _, _ := strings.Cut(field.Tag.Get("json"), ","); member != "-" {
				known[member] = jsonType(field.Type)
			}
		}
		stated := map[string]string{}
		for member, property := range document.Components.Schemas[name].Properties {
			stated[member] = property.kind()
		}
		if len(stated) == 0 || !reflect.DeepEqual(known, stated) {
			t.Errorf("%s: this package knows %v, docs/openapi.json states %v", name, known, stated)
		}
	}
}

type schema struct {
	Properties map[string]schema `json:"properties"`
	Type       any               `json:"type"`
	Ref        string            `json:"$ref"`
}

func (schema schema) kind() string {
	if kinds, is := schema.Type.([]any); is {
		return strings.Trim(strings.Join(slices.DeleteFunc([]string{kinds[0].(string), kinds[1].(string)},
			func(kind string) bool { return kind == "null" }), ""), " ")
	}
	if schema.Ref != "" {
		return "object"
	}
	return schema.Type.(string)
}

func jsonType(kind reflect.Type) string {
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
		return "array"
	case reflect.Map, reflect.Struct:
		return "object"
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
