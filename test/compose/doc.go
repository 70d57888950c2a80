// Package compose has the test of docker-compose.yml and the Dockerfile. It is
// a module of its own, so that what the compose parser needs never reaches the
// service's.
package compose
