// Package migration compares package rate with the one that it replaces.
package migration

import (
	"go/importer"
	"go/token"
	"go/types"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	theirs "golang.org/x/time/rate"

	ours "github.com/tidegate/tidegate/clients/go/rate"
)

// missing are the methods that MIGRATION.md says are left out.
var missing = []string{"SetBurst", "SetBurstAt", "SetLimit", "SetLimitAt"}

func TestHasTheMethodsOfTheReplacedLimiter(t *testing.T) {
	compare(t, reflect.TypeFor[*theirs.Limiter](), reflect.TypeFor[*ours.Limiter](), missing)
	compare(t, reflect.TypeFor[*theirs.Reservation](), reflect.TypeFor[*ours.Reservation](), nil)
	if theirs.Every(3) != theirs.Limit(ours.Every(3)) || theirs.Inf != theirs.Limit(ours.Inf) || theirs.InfDuration != ours.InfDuration {
		t.Error("Every, Inf or InfDuration differs")
	}
}

func TestThePageSaysOfEachNameWhatBecomesOfIt(t *testing.T) {
	page, err := os.ReadFile("../../MIGRATION.md")
	if err != nil {
		t.Fatal(err)
	}
	source := importer.ForCompiler(token.NewFileSet(), "source", nil).(types.ImporterFrom)
	replaced, err := source.ImportFrom("golang.org/x/time/rate", ".", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range exported(replaced.Scope()) {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("MIGRATION.md does not say what becomes of %s", name)
		}
	}
}

// exported are the names that a package exports, with those of its types' methods and fields.
func exported(scope *types.Scope) []string {
	var names []string
	add := func(object types.Object) {
		if object.Exported() {
			names = append(names, object.Name())
		}
	}
	for _, name := range scope.Names() {
		add(scope.Lookup(name))
		object, is := scope.Lookup(name).(*types.TypeName)
		if !is || !object.Exported() {
			continue
		}
		for method := range object.Type().(*types.Named).Methods() {
			add(method)
		}
		if fields, is := object.Type().Underlying().(*types.Struct); is {
			for field := range fields.Fields() {
				add(field)
			}
		}
	}
	return names
}

func compare(t *testing.T, theirs, ours reflect.Type, missing []string) {
	t.Helper()
	for index := range theirs.NumMethod() {
		method := theirs.Method(index)
		found, is := ours.MethodByName(method.Name)
		switch {
		case slices.Contains(missing, method.Name):
			if is {
				t.Errorf("%s is there: say so in MIGRATION.md", method.Name)
			}
		case !is:
			t.Errorf("%s is missing", method.Name)
		case signature(method) != signature(found):
			t.Errorf("%s is %s and not %s", method.Name, signature(found), signature(method))
		}
	}
}

// signature is a method's type without the modules' own paths, which String leaves out but for their last word.
func signature(method reflect.Method) string {
	return strings.ReplaceAll(method.Type.String(), "rate.", "")
}
