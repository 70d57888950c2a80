package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/open-leaderboard/leaderboard/internal/cli"
	"github.com/open-leaderboard/leaderboard/internal/config"
)

// traceTarget is the collector of the traces, named by OpenTelemetry's environment variables. The
// SDK reads further variables itself.
type traceTarget struct{ endpoint, protocol string }

func traceTargetOf(getenv func(string) string) (*traceTarget, error) {
	// get returns the value and the name of the variable OTEL_EXPORTER_OTLP_TRACES_*. If the variable
	// is empty, get uses OTEL_EXPORTER_OTLP_*.
	get := func(name string) (value, variable string) {
		if value := getenv("OTEL_EXPORTER_OTLP_TRACES_" + name); value != "" {
			return value, "OTEL_EXPORTER_OTLP_TRACES_" + name
		}
		return getenv("OTEL_EXPORTER_OTLP_" + name), "OTEL_EXPORTER_OTLP_" + name
	}
	endpoint, variable := get("ENDPOINT")
	exporter := getenv("OTEL_TRACES_EXPORTER")
	if getenv("OTEL_SDK_DISABLED") == "true" || exporter == "none" || exporter == "" && endpoint == "" {
		return nil, nil
	}
	if exporter != "" && exporter != "otlp" {
		return nil, cli.Usagef("OTEL_TRACES_EXPORTER is %q; set it to otlp or none", exporter)
	}
	if u, err := url.Parse(endpoint); endpoint != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		return nil, cli.Usagef("%s is not a URL such as http://collector:4318", variable)
	}
	protocol, variable := get("PROTOCOL")
	protocol = cmp.Or(protocol, "http/protobuf")
	if protocol != "http/protobuf" && protocol != "grpc" {
		return nil, cli.Usagef("%s is %q; set it to http/protobuf or grpc", variable, protocol)
	}
	return &traceTarget{endpoint, protocol}, nil
}

// traceShutdown is how long a stopping server may take to export its last spans.
const traceShutdown = 5 * time.Second

func (s *server) openTracing(ctx context.Context, c *config.Config) error {
	target, err := traceTargetOf(os.Getenv)
	if err != nil || target == nil {
		return err
	}
	var exporter sdktrace.SpanExporter
	if target.protocol == "grpc" {
		exporter, err = otlptracegrpc.New(ctx)
	} else {
		exporter, err = otlptracehttp.New(ctx)
	}
	if err != nil {
		return fmt.Errorf("cannot export traces: %w; correct the variables OTEL_EXPORTER_OTLP_*", err)
	}
	process, err := resource.New(ctx, resource.WithHost(), resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", clientID), attribute.String("service.version", cli.ReadVersion().Version),
		attribute.StringSlice("leaderboard.roles", c.Roles), attribute.String("leaderboard.region", c.Region),
	), resource.WithFromEnv())
	if err != nil {
		return fmt.Errorf("cannot describe this process in traces: %w; correct the variable OTEL_RESOURCE_ATTRIBUTES", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(loggedExporter{exporter, s.log}), sdktrace.WithResource(process))
	s.traces = provider
	s.closeLater(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), traceShutdown)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			s.log.Warn("traces not exported", "err", err)
		}
		return nil
	})
	s.log.InfoContext(ctx, "exporting traces", "endpoint", redactURL(target.endpoint), "protocol", target.protocol)
	return nil
}

func redactURL(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return ""
	}
	return u.Redacted()
}

// loggedExporter logs an exporter's failures. The SDK would print the failures to standard error.
type loggedExporter struct {
	sdktrace.SpanExporter
	log *slog.Logger
}

// ExportSpans exports spans, or drops them after a failure.
func (e loggedExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := e.SpanExporter.ExportSpans(ctx, spans); err != nil {
		e.log.WarnContext(ctx, "traces not exported", "spans", len(spans), "err", err)
	}
	return nil
}
