package fields

import "testing"

func FuzzFields(f *testing.F) {
	for _, seed := range []string{`"a";r=5;t=4`, `"a,\"b";r=5;r=0;t=4, "b";q=:AAEC:;x=?1;d=@1;s=%"a%c3"`, `"a`, ``} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		items, is := Read([]string{text})
		if !is && items != nil {
			t.Error("a malformed list has items")
		}
		for _, item := range items {
			again, is := Read([]string{Quoted(item.Name)})
			if !is || len(again) != 1 || again[0].Name != item.Name {
				t.Errorf("the name %q is not read back", item.Name)
			}
		}
	})
}
