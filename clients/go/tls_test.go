package tidegate_test

// TLS to the real binary, with a certificate authority of one's own: who is trusted, who is not, and that the
// deadline holds for a handshake.

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tidegate "github.com/tidegate/tidegate/clients/go"
	"github.com/tidegate/tidegate/clients/go/internal/testserver"
)

// authority signs certificates for servers.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// signed is a certificate for a key, signed by a parent, or by itself if that is nil.
func signed(t *testing.T, template *x509.Certificate, key *ecdsa.PrivateKey, parent *authority) *x509.Certificate {
	t.Helper()
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if parent == nil {
		parent = &authority{template, key}
	}
	bytes, err := x509.CreateCertificate(rand.Reader, template, parent.certificate, &key.PublicKey, parent.key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(bytes)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key := newKey(t)
	return &authority{signed(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "the authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, key, nil), key}
}

// server starts the real binary with a certificate of this authority for 127.0.0.1.
func (own *authority) server(t *testing.T) *testserver.Server {
	t.Helper()
	key := newKey(t)
	certificate := signed(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "the server"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, key, own)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	write := func(name, kind string, bytes []byte) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cases, err := os.ReadFile(filepath.Join(testserver.Clients(), "conformance.toml"))
	if err != nil {
		t.Fatal(err)
	}
	return testserver.StartWith(t, fmt.Sprintf("http.tls_certificate = %q\nhttp.tls_key = %q\n%s",
		write("certificate.pem", "CERTIFICATE", certificate.Raw), write("key.pem", "PRIVATE KEY", secret), cases))
}

// trusting makes a client trust this authority alone.
func (own *authority) trusting(options *tidegate.Options) {
	pool := x509.NewCertPool()
	pool.AddCert(own.certificate)
	options.TLS = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}
}

func TestTLSWithACertificateAuthorityOfOnesOwn(t *testing.T) {
	own := newAuthority(t)
	server := own.server(t)
	if !strings.HasPrefix(server.URL, "https://") {
		t.Fatalf("the server listens at %s", server.URL)
	}
	patient := func(options *tidegate.Options) { options.Deadline = time.Minute }
	another := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	for _, client := range []struct {
		what    string
		asks    *tidegate.Client
		failure tidegate.Failure
	}{
		{"its authority is trusted", newClient(t, server.URL, patient, own.trusting), tidegate.NoFailure},
		{"the system's authorities do not know it", newClient(t, server.URL, patient), tidegate.FailedConnection},
		{"another authority", newClient(t, server.URL, patient, newAuthority(t).trusting), tidegate.FailedConnection},
		{"another name than the certificate's", newClient(t, another, patient, own.trusting), tidegate.FailedConnection},
	} {
		for range 2 { // The second on a kept connection, if there is one.
			decision, err := client.asks.Allow(context.Background(), tidegate.Attributes{"client_id": "tls", "resource": "ten"})
			if err != nil || decision.Failure != client.failure || !decision.Allowed {
				t.Errorf("%s: %+v, %v", client.what, decision, err)
			}
		}
	}
}

func TestFault75AHandshakeWithAFrozenServerEndsAtTheDeadline(t *testing.T) {
	own := newAuthority(t)
	server := own.server(t)
	client := newClient(t, server.URL, own.trusting, func(options *tidegate.Options) { options.OnFailure = tidegate.FailClosed })
	server.Freeze()
	defer server.Thaw()
	decision, err := client.Allow(context.Background(), tidegate.Attributes{"client_id": "tls", "resource": "ten"})
	if err != nil || decision.Failure != tidegate.FailedTimeout || decision.Allowed {
		t.Errorf("%+v, %v", decision, err)
	}
}
