package testserver

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Object is a JSON object.
type Object = map[string]any

// Document reads clients/conformance.json.
func Document(t testing.TB) Object {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Clients(), "conformance.json"))
	if err != nil {
		t.Fatal(err)
	}
	var document Object
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	return document
}

// Text reads a text, which may be written as a repetition.
func Text(value any) string {
	if parts, is := value.(Object); is {
		then, _ := parts["then"].(string)
		return strings.Repeat(parts["repeat"].(string), int(parts["times"].(float64))) + then
	}
	return value.(string)
}

// Differs says where a result is not what was expected; an empty text: nowhere.
func Differs(expected, result any, present bool, place string) string {
	if rule, is := expected.(Object); is {
		if _, is := rule["absent"]; is {
			return complaint(!present, place, "is there: %v", result)
		}
		if !present {
			return place + " is absent"
		}
		if _, is := rule["present"]; is {
			return ""
		}
		if choices, is := rule["one_of"].([]any); is {
			return complaint(slices.Contains(choices, result), place, "is %v", result)
		}
		if from, is := rule["from"].(float64); is {
			to, bounded := rule["to"].(float64)
			if !bounded {
				to = math.Inf(1)
			}
			number, is := result.(float64)
			return complaint(is && number >= from && number <= to, place, "is %v", result)
		}
		members, is := result.(Object)
		if !is {
			return fmt.Sprintf("%s is %v", place, result)
		}
		for name, value := range rule {
			found, is := members[name]
			if said := Differs(value, found, is, place+"."+name); said != "" {
				return said
			}
		}
		return ""
	}
	if rules, is := expected.([]any); is {
		list, is := result.([]any)
		if !is || len(list) != len(rules) {
			return fmt.Sprintf("%s is %v", place, result)
		}
		for index, rule := range rules {
			if said := Differs(rule, list[index], true, fmt.Sprintf("%s[%d]", place, index)); said != "" {
				return said
			}
		}
		return ""
	}
	return complaint(present && reflect.DeepEqual(expected, result), place, "is %v", result)
}

func complaint(fine bool, place, format string, arguments ...any) string {
	if fine {
		return ""
	}
	return place + " " + fmt.Sprintf(format, arguments...)
}
