// Package compose tests docker-compose.yml, the Dockerfile, releases and the files in
// deploy. It is a separate module, so the dependencies of the parsers of Compose and
// Prometheus stay out of the service's module.
package compose
