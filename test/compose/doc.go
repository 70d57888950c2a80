// Package compose tests the Compose files, the Dockerfile, releases, deploy/prometheus and
// deploy/grafana. It is a separate module, so the parsers of Compose and Prometheus stay out of the
// service's module.
package compose
