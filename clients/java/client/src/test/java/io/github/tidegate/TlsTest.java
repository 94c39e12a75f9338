package io.github.tidegate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InputStream;
import java.net.http.HttpClient;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.function.Consumer;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * TLS to the real binary, with a certificate authority of one's own: who is trusted, who is not,
 * and that the deadline holds for a handshake.
 */
class TlsTest {
  private static final Request REQUEST = Request.of(Map.of("client_id", "tls", "resource", "ten"));

  @TempDir Path folder;

  private void openssl(String... arguments) throws IOException, InterruptedException {
    String[] words = new String[arguments.length + 1];
    words[0] = "openssl";
    System.arraycopy(arguments, 0, words, 1, arguments.length);
    Process process =
        new ProcessBuilder(words).directory(folder.toFile()).redirectErrorStream(true).start();
    String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertEquals(0, process.waitFor(), said);
  }

  /** NAME.pem and NAME.key, which may sign others. */
  private void makeAuthority(String name) throws IOException, InterruptedException {
    openssl(
        ("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN="
                + name
                + " -keyout "
                + name
                + ".key -out "
                + name
                + ".pem")
            .split(" "));
  }

  /** Starts the real binary with a certificate of an authority for 127.0.0.1. */
  private TestServer start(String authority) throws IOException, InterruptedException {
    openssl(
        ("req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=server"
                + " -keyout server.key -out server.csr")
            .split(" "));
    Files.writeString(folder.resolve("names"), "subjectAltName=IP:127.0.0.1\n");
    openssl(
        ("x509 -req -days 2 -in server.csr -out server.pem -extfile names -CAcreateserial -CA "
                + authority
                + ".pem -CAkey "
                + authority
                + ".key")
            .split(" "));
    String tls =
        "http.tls_certificate = '%s'%nhttp.tls_key = '%s'%n"
            .formatted(folder.resolve("server.pem"), folder.resolve("server.key"));
    Path cases = TestServer.root().resolve("clients/conformance.toml");
    return TestServer.with(tls + Files.readString(cases));
  }

  private Consumer<Options> trusting(String authority)
      throws IOException, GeneralSecurityException {
    KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
    store.load(null, null);
    try (InputStream pem = Files.newInputStream(folder.resolve(authority + ".pem"))) {
      store.setCertificateEntry(
          authority, CertificateFactory.getInstance("X.509").generateCertificate(pem));
    }
    TrustManagerFactory trust =
        TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    trust.init(store);
    SSLContext context = SSLContext.getInstance("TLS");
    context.init(null, trust.getTrustManagers(), null);
    return options -> options.http(HttpClient.newBuilder().sslContext(context));
  }

  private static void asks(
      String what, String url, Consumer<Options> change, Optional<Failure> failure) {
    try (Tidegate client =
        Tidegate.create(
            change.andThen(
                options ->
                    options.url(url).token("conformance-token").deadline(Duration.ofMinutes(1))))) {
      for (int call = 0; call < 2; call++) { // The second on a kept connection, if there is one.
        Decision decision = client.allow(REQUEST);
        assertEquals(failure, decision.failure(), what);
        assertTrue(decision.allowed(), what);
      }
    }
  }

  @Test
  void tlsWithACertificateAuthorityOfOnesOwn() throws Exception {
    makeAuthority("own");
    makeAuthority("another");
    Optional<Failure> refused = Optional.of(Failure.CONNECTION);
    try (TestServer server = start("own")) {
      assertTrue(server.url().startsWith("https://"), server.url());
      asks("its authority is trusted", server.url(), trusting("own"), Optional.empty());
      asks("the JDK's authorities do not know it", server.url(), options -> {}, refused);
      asks("another authority", server.url(), trusting("another"), refused);
      String name = server.url().replace("127.0.0.1", "localhost");
      asks("another name than the certificate's", name, trusting("own"), refused);
    }
  }

  @Test
  void fault75AHandshakeWithAFrozenServerEndsAtTheDeadline() throws Exception {
    makeAuthority("own");
    try (TestServer server = start("own")) {
      Consumer<Options> closed =
          options -> options.url(server.url()).onFailure(Options.OnFailure.CLOSED);
      try (Tidegate client = Tidegate.create(trusting("own").andThen(closed))) {
        server.freeze();
        Decision decision = client.allow(REQUEST);
        assertEquals(Optional.of(Failure.TIMEOUT), decision.failure());
        assertFalse(decision.allowed());
      } finally {
        server.thaw();
      }
    }
  }
}
