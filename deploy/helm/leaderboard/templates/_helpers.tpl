{{- define "leaderboard.name" -}}
{{- if contains "leaderboard" .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-leaderboard" (.Release.Name | trunc 28 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{/* The labels that select the pods of a release. */}}
{{- define "leaderboard.selector" -}}
app.kubernetes.io/name: leaderboard
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "leaderboard.labels" -}}
{{ include "leaderboard.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "leaderboard.settings" -}}
LEADERBOARD_HTTP: 0.0.0.0:8080
LEADERBOARD_GRPC: 0.0.0.0:50051
LEADERBOARD_ADMIN: 0.0.0.0:9090
LEADERBOARD_DRAIN_TIME: 15s
{{- if eq .Values.engine "embedded" }}
LEADERBOARD_DATA: /data/boards
LEADERBOARD_BACKUP_DIR: /data/backups
LEADERBOARD_BACKUP_EVERY: 24h
{{- else }}
LEADERBOARD_CASSANDRA_DATA_CENTER: dc1
{{- range list "CASSANDRA" "REDIS" "KAFKA" }}
LEADERBOARD_{{ . }}_USERNAME: leaderboard
LEADERBOARD_{{ . }}_TLS_ENABLED: "true"
LEADERBOARD_{{ . }}_TLS_CA: /etc/leaderboard/ca/ca.crt
{{- end }}
{{- end }}
{{- end -}}

{{- define "leaderboard.allSettings" -}}
{{- toYaml (merge (dict) .Values.settings (include "leaderboard.settings" . | fromYaml)) -}}
{{- end -}}

{{- define "leaderboard.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}{{ .repository }}@{{ .digest }}{{- else -}}{{ .repository }}:{{ required "image.tag or image.digest is required" .tag }}{{- end -}}
{{- end -}}
{{- end -}}

{{/* The metadata of a pod. Arguments: a dictionary with root and component. */}}
{{- define "leaderboard.podMetadata" -}}
labels:
  {{- include "leaderboard.labels" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .component }}
annotations:
  checksum/settings: {{ include "leaderboard.allSettings" .root | sha256sum }}
{{- end -}}

{{- define "leaderboard.matchLabels" -}}
{{ include "leaderboard.selector" .root }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* The fields of a pod's spec that all workloads share. */}}
{{- define "leaderboard.pod" -}}
serviceAccountName: {{ include "leaderboard.name" . }}
automountServiceAccountToken: false
# Kubernetes would set variables for the Service. Their names may begin with LEADERBOARD_, as the names of settings do.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  {{- if eq .Values.engine "embedded" }}
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  {{- end }}
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.pod }}
{{ toYaml . }}
{{- end }}
{{- if eq .Values.engine "distributed" }}
volumes:
  - name: ca
    secret:
      secretName: {{ .Values.caSecret }}
      items: [{key: ca.crt, path: ca.crt}]
{{- end }}
{{- end -}}

{{/* The fields of the container that all workloads share. */}}
{{- define "leaderboard.container" -}}
name: leaderboard
image: {{ include "leaderboard.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
envFrom:
  - configMapRef: {name: {{ include "leaderboard.name" . }}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
volumeMounts:
{{- if eq .Values.engine "embedded" }}
  - {name: data, mountPath: /data}
{{- else }}
  - {name: ca, mountPath: /etc/leaderboard/ca, readOnly: true}
{{- end }}
{{- end -}}

{{/* The passwords of Cassandra, Redis and Kafka, and the secret for the game's own store. */}}
{{- define "leaderboard.passwords" -}}
{{- $secret := .Values.secret -}}
{{- range list "cassandra" "redis" "kafka" }}
- name: LEADERBOARD_{{ upper . }}_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ $secret }}, key: {{ . }}-password}}
{{- end }}
- name: LEADERBOARD_CANONICAL_SECRET
  valueFrom: {secretKeyRef: {name: {{ $secret }}, key: canonical-secret, optional: true}}
{{- end -}}

{{- define "leaderboard.adminKey" -}}
- name: LEADERBOARD_ADMIN_KEY
  valueFrom: {secretKeyRef: {name: {{ .Values.secret }}, key: admin-key}}
{{- end -}}

{{/* 90 % of a memory limit, such as 1Gi or 500Mi, which the schema of the values checks. */}}
{{- define "leaderboard.memoryLimit" -}}
{{- $mib := mulf (trimSuffix "Gi" . | trimSuffix "Mi" | float64) (ternary 1024 1 (hasSuffix "Gi" .)) -}}
- {name: GOMEMLIMIT, value: {{ mulf $mib 0.9 | floor | int }}MiB}
{{- end -}}

{{/* The fields of the container of a process that serves. */}}
{{- define "leaderboard.server" -}}
args: [serve]
# The process answers probes at once. Until start_timeout, it waits for Cassandra.
startupProbe:
  httpGet: {path: /healthz, port: admin}
  periodSeconds: 5
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: admin}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: admin}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
{{- end -}}

{{- define "leaderboard.apiPorts" -}}
- {name: http, containerPort: 8080}
- {name: grpc, containerPort: 50051}
{{- end -}}
