// Package manifests tests deploy/. It is a separate module, so the dependencies of
// Kubernetes' types stay out of the service's module.
package manifests
