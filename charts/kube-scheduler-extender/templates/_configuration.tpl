{{/* The ExtenderConfiguration: what the mode and tls make of it, and the value configuration over that. */}}
{{- define "extender.configuration" -}}
{{- $server := dict "port" 8888 -}}
{{- $management := dict "port" 8889 -}}
{{- if eq .Values.mode "sidecar" -}}
{{- $_ := set $server "host" "127.0.0.1" -}}
{{- $_ := set $server "drainSeconds" 0 -}}
{{- end -}}
{{- if .Values.tls.secretName -}}
{{- $files := dict "certFile" "/etc/scheduler-extender-tls/tls.crt" "keyFile" "/etc/scheduler-extender-tls/tls.key" -}}
{{- $callers := dict "clientCaFile" "/etc/scheduler-extender-tls/ca.crt" "allowedSubjects" .Values.tls.allowedSubjects -}}
{{- $_ := set $server "tls" (merge $callers $files) -}}
{{- $_ := set $management "tls" $files -}}
{{- end -}}
{{- if .Values.authentication.enabled -}}
{{- $_ := set $management "authentication" (dict "enabled" true) -}}
{{- end -}}
{{- $exempt := dict "namespaces" (list .Release.Namespace) "priorityClassNames" (list "system-node-critical" "system-cluster-critical") -}}
{{- $made := dict "apiVersion" "scheduler-extender/v1" "kind" "ExtenderConfiguration" "server" $server "management" $management "exempt" $exempt -}}
{{- if not (hasKey .Values.configuration "algorithmSource") -}}
{{- $_ := set $made "profiles" (list (dict "provider" "ExtensionProvider")) -}}
{{- end -}}
{{- if eq .Values.mode "ha" -}}
{{- $_ := set $made "leaderElection" (dict "enabled" true "leaseName" (include "extender.name" .)) -}}
{{- end -}}
{{- toYaml (mergeOverwrite $made (deepCopy .Values.configuration)) -}}
{{- end -}}

{{/* The KubeSchedulerConfiguration of mode sidecar. Its lease is in the namespace that the command names. */}}
{{- define "extender.schedulerConfiguration" -}}
{{- $port := (include "extender.configuration" . | fromYaml).server.port | int -}}
{{- $entry := dict
  "urlPrefix" (printf "http://127.0.0.1:%d/scheduler" $port)
  "filterVerb" "filter"
  "prioritizeVerb" "prioritize"
  "preemptVerb" "preempt"
  "bindVerb" "bind"
  "weight" 1
  "nodeCacheCapable" true
  "httpTimeout" "5s"
  "ignorable" false -}}
{{- $profile := dict "schedulerName" .Values.scheduler.name -}}
{{- $made := dict
  "apiVersion" "kubescheduler.config.k8s.io/v1"
  "kind" "KubeSchedulerConfiguration"
  "leaderElection" (dict "leaderElect" true "resourceName" .Values.scheduler.name)
  "profiles" (list (mergeOverwrite $profile (deepCopy .Values.scheduler.profile)))
  "extenders" (list (mergeOverwrite $entry (deepCopy .Values.scheduler.extender))) -}}
{{- toYaml (mergeOverwrite $made (deepCopy .Values.scheduler.configuration)) -}}
{{- end -}}
