package peers_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/tidegate/tidegate/clients/go/internal/peers"
	"github.com/tidegate/tidegate/clients/go/internal/testserver"
)

func TestAPeerHasOneName(t *testing.T) {
	for _, item := range testserver.Document(t)["addresses"].([]any) {
		one := item.(testserver.Object)
		if found := peers.Name(one["peer"].(string)); found != one["name"] {
			t.Errorf("%v is %s, not %v", one["peer"], found, one["name"])
		}
	}
}

func TestAProxyThatIsNotTrustedIsSaidOnce(t *testing.T) {
	var said bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&said, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	var once sync.Once
	for _, forwarded := range []string{"", "192.0.2.1, 10.0.0.1", "10.0.0.1:80", "2001:db8::1", "192.0.2.2"} {
		peers.Forwarded(&once, forwarded, "10.0.0.1:4711", "trust it")
		if forwarded != "192.0.2.2" && strings.Contains(said.String(), "2001") {
			t.Errorf("after %q: %s", forwarded, said.String())
		}
	}
	if strings.Count(said.String(), "X-Forwarded-For") != 1 {
		t.Error(said.String())
	}
}
