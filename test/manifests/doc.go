// Package manifests tests deploy/kubernetes, deploy/systemd and .github/workflows. It is a separate
// module, so Kubernetes' types stay out of the service's module.
package manifests
