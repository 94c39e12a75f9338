/**
 * Tells OpenTelemetry what a client does: {@link
 * io.github.tidegate.opentelemetry.TidegateTelemetry}.
 */
package io.github.tidegate.opentelemetry;
