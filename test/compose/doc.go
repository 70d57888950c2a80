// Package compose tests docker-compose.yml and the Dockerfile. It is a separate module,
// so the dependencies of the compose parser stay out of the service's module.
package compose
