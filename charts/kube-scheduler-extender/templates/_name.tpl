{{/* What the objects are called: the release, and the chart unless the release says it. */}}
{{- define "extender.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* By what the pods are found. */}}
{{- define "extender.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "extender.labels" -}}
{{ include "extender.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* The service account, as the subject of a binding. */}}
{{- define "extender.subject" -}}
- kind: ServiceAccount
  name: {{ include "extender.name" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}

{{- define "extender.serverName" -}}
{{- .Values.tls.serverName | default (printf "%s.%s.svc" (include "extender.name" .) .Release.Namespace) -}}
{{- end -}}

{{- define "extender.replicas" -}}
{{- $usual := dict "service" 1 "ha" 3 "sidecar" 2 -}}
{{- .Values.replicas | default (get $usual .Values.mode) | int -}}
{{- end -}}

{{- define "extender.preStopSeconds" -}}
{{- ternary 20 0 (eq .Values.mode "ha") -}}
{{- end -}}

{{/* How long a pod may take to end: what ending takes by the configuration and 5 s to spare, rounded up to half minutes. */}}
{{- define "extender.endSeconds" -}}
{{- $server := (include "extender.configuration" . | fromYaml).server -}}
{{- $drain := ternary $server.drainSeconds 5 (hasKey $server "drainSeconds") -}}
{{- $grace := ternary $server.graceSeconds 20 (hasKey $server "graceSeconds") -}}
{{- $needed := addf $drain $grace (include "extender.preStopSeconds" .) 5 -}}
{{- mulf (divf $needed 30 | ceil) 30 | int -}}
{{- end -}}
