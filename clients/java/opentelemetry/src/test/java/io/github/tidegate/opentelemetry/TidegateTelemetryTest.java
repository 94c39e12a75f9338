package io.github.tidegate.opentelemetry;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.net.httpserver.HttpServer;
import io.github.tidegate.Request;
import io.github.tidegate.TestServer;
import io.github.tidegate.Tidegate;
import io.opentelemetry.api.OpenTelemetry;
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.propagation.W3CTraceContextPropagator;
import io.opentelemetry.context.Context;
import io.opentelemetry.context.propagation.ContextPropagators;
import io.opentelemetry.sdk.OpenTelemetrySdk;
import io.opentelemetry.sdk.metrics.SdkMeterProvider;
import io.opentelemetry.sdk.metrics.data.MetricData;
import io.opentelemetry.sdk.testing.exporter.InMemoryMetricReader;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.junit.jupiter.api.Test;

class TidegateTelemetryTest {
  @Test
  void tellsCallsAndDurationsWithoutClients() {
    InMemoryMetricReader reader = InMemoryMetricReader.create();
    OpenTelemetry telemetry =
        OpenTelemetrySdk.builder()
            .setMeterProvider(SdkMeterProvider.builder().registerMetricReader(reader).build())
            .build();
    try (TestServer server =
            TestServer.with("[[policy]]\nname = \"calls\"\nlimit = 1\nwindow_seconds = 3600\n");
        Tidegate client =
            Tidegate.create(
                TidegateTelemetry.of(telemetry)
                    .andThen(
                        options -> options.url(server.url()).deadline(Duration.ofSeconds(10))))) {
      for (int call = 0; call < 3; call++) {
        client.allow(Map.of("client_id", "secret"));
      }
    }
    Map<String, Long> counts = new HashMap<>();
    long durations = 0;
    for (MetricData metric : reader.collectAllMetrics()) {
      assertFalse(metric.toString().contains("secret"), metric.toString());
      if (metric.getName().equals("tidegate.client.calls")) {
        metric
            .getLongSumData()
            .getPoints()
            .forEach(
                point ->
                    counts.merge(
                        point.getAttributes().get(AttributeKey.stringKey("outcome"))
                            + " "
                            + point.getAttributes().get(AttributeKey.stringKey("source")),
                        point.getValue(),
                        Long::sum));
      } else {
        durations +=
            metric.getHistogramData().getPoints().stream()
                .mapToLong(point -> point.getCount())
                .sum();
      }
    }
    assertEquals(Map.of("allowed server", 1L, "denied server", 1L, "denied cache", 1L), counts);
    assertEquals(3, durations);
  }

  @Test
  void addsTheTraceContextToRequests() throws IOException, InterruptedException {
    OpenTelemetry telemetry =
        OpenTelemetrySdk.builder()
            .setTracerProvider(SdkTracerProvider.builder().build())
            .setPropagators(ContextPropagators.create(W3CTraceContextPropagator.getInstance()))
            .build();
    BlockingQueue<String> sent = new LinkedBlockingQueue<>();
    HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
    server.createContext(
        "/",
        exchange -> {
          sent.add(String.valueOf(exchange.getRequestHeaders().getFirst("traceparent")));
          exchange.sendResponseHeaders(503, -1);
        });
    server.start();
    String url = "http://127.0.0.1:" + server.getAddress().getPort();
    try (Tidegate client =
        Tidegate.create(
            TidegateTelemetry.of(telemetry)
                .andThen(options -> options.url(url).deadline(Duration.ofSeconds(10))))) {
      Span span = telemetry.getTracer("test").spanBuilder("asking").startSpan();
      Request request = Request.of(Map.of("client_id", "a"));
      List<Runnable> calls =
          List.of(
              () -> client.allow(request),
              () -> client.allowAsync(request).join(),
              () -> client.batch(List.of(request, request)),
              () -> client.refund(request));
      for (Runnable call : calls) {
        Context.current().with(span).wrap(call).run();
        String field = sent.take();
        assertTrue(field.contains(span.getSpanContext().getTraceId()), field);
      }
      span.end();
    } finally {
      server.stop(0);
    }
  }
}
