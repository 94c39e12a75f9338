package io.github.tidegate.opentelemetry;

import io.github.tidegate.Decision;
import io.github.tidegate.Event;
import io.github.tidegate.Failure;
import io.github.tidegate.Options;
import io.opentelemetry.api.OpenTelemetry;
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.common.AttributesBuilder;
import io.opentelemetry.api.metrics.DoubleHistogram;
import io.opentelemetry.api.metrics.LongCounter;
import io.opentelemetry.api.metrics.Meter;
import io.opentelemetry.context.Context;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;

/**
 * Tells OpenTelemetry what a client does: {@code tidegate.client.calls}, a counter, and {@code
 * tidegate.client.duration}, a histogram in seconds, with operation, outcome, source, failure and
 * policy. It adds the trace context to requests.
 *
 * <pre>{@code
 * Tidegate client = Tidegate.create(TidegateTelemetry.of(openTelemetry));
 * }</pre>
 */
public final class TidegateTelemetry {
  private static final List<Double> BOUNDARIES =
      List.of(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0);

  private TidegateTelemetry() {}

  /** A change of a client's options. */
  public static Consumer<Options> of(OpenTelemetry telemetry) {
    Meter meter = telemetry.getMeter("io.github.tidegate");
    LongCounter calls = meter.counterBuilder("tidegate.client.calls").setUnit("{call}").build();
    DoubleHistogram durations =
        meter
            .histogramBuilder("tidegate.client.duration")
            .setUnit("s")
            .setExplicitBucketBoundariesAdvice(BOUNDARIES)
            .build();
    return options ->
        options
            .onEvent(
                event -> {
                  Attributes known = attributes(event);
                  calls.add(1, known);
                  durations.record(event.duration().toNanos() / 1e9, known);
                })
            .headers(() -> propagated(telemetry));
  }

  private static Map<String, String> propagated(OpenTelemetry telemetry) {
    Map<String, String> fields = new HashMap<>();
    telemetry.getPropagators().getTextMapPropagator().inject(Context.current(), fields, Map::put);
    return fields;
  }

  private static Attributes attributes(Event event) {
    AttributesBuilder known = Attributes.builder();
    known.put(AttributeKey.stringKey("operation"), event.operation());
    known.put(AttributeKey.stringKey("outcome"), event.outcome());
    event.source().map(Decision.Source::word).ifPresent(word -> known.put("source", word));
    event.failure().map(Failure::word).ifPresent(word -> known.put("failure", word));
    event.policy().ifPresent(name -> known.put("policy", name));
    return known.build();
  }
}
