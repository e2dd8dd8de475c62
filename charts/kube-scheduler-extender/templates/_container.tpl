{{- define "extender.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* An image by its tag, or by its digest where there is one. */}}
{{- define "extender.image" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository .tag -}}
{{- end -}}
{{- end -}}

{{/* The service: a container of the pod, or in mode sidecar an init container that stays. */}}
{{- define "extender.container" -}}
{{- $ports := include "extender.configuration" . | fromYaml -}}
{{- $scheme := ternary "HTTPS" "HTTP" (ne .Values.tls.secretName "") -}}
{{- $sidecar := eq .Values.mode "sidecar" -}}
name: extender
image: {{ include "extender.image" (dict "image" .Values.image "tag" (.Values.image.tag | default .Chart.AppVersion)) }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args: [serve, --config, /etc/scheduler-extender/extender-configuration.yaml]
{{- if $sidecar }}
restartPolicy: Always
{{- end }}
{{- with .Values.extraEnv }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  {{- if not $sidecar }}
  - name: verbs
    containerPort: {{ $ports.server.port | int }}
  {{- end }}
  - name: management
    containerPort: {{ $ports.management.port | int }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
startupProbe:
  {{- if $sidecar }}
  # kube-scheduler starts once everything watched is synced. Five minutes for that, with the API server away at first.
  httpGet: {path: /readyz, port: management, scheme: {{ $scheme }}}
  periodSeconds: 2
  timeoutSeconds: 3
  failureThreshold: 150
  {{- else }}
  httpGet: {path: /livez, port: management, scheme: {{ $scheme }}}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 30
  {{- end }}
# Fails when the event loop hangs, not when the API server is away.
livenessProbe:
  httpGet: {path: /livez, port: management, scheme: {{ $scheme }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
# Fails until everything watched is synced, and from SIGTERM on; in mode ha also in those that do not lead.
readinessProbe:
  httpGet: {path: /readyz, port: management, scheme: {{ $scheme }}}
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: 2
{{- if eq .Values.mode "ha" }}
# The old leader goes on leading while its successors start and sync, so that a rollout leaves no long gap.
lifecycle:
  preStop:
    sleep:
      seconds: {{ include "extender.preStopSeconds" . }}
{{- end }}
securityContext:
  {{- include "extender.confined" . | nindent 2 }}
volumeMounts:
  - name: configuration
    mountPath: /etc/scheduler-extender
    readOnly: true
  {{- if .Values.tls.secretName }}
  - name: tls
    mountPath: /etc/scheduler-extender-tls
    readOnly: true
  {{- end }}
  - name: tmp
    mountPath: /tmp
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "extender.schedulerContainer" -}}
name: kube-scheduler
image: {{ include "extender.image" (dict "image" .Values.scheduler.image "tag" .Values.scheduler.image.tag) }}
imagePullPolicy: {{ .Values.scheduler.image.pullPolicy }}
command:
  - kube-scheduler
  - --config=/etc/scheduler-extender/scheduler-configuration.yaml
  - --leader-elect-resource-namespace=$(NAMESPACE)
  # Readers of /metrics show tokens; without it, a right in kube-system would be needed to look up who signs client
  # certificates.
  - --authentication-skip-lookup=true
env:
  - name: NAMESPACE
    valueFrom:
      fieldRef:
        fieldPath: metadata.namespace
ports:
  - name: scheduler
    containerPort: 10259
resources:
  {{- toYaml .Values.scheduler.resources | nindent 2 }}
startupProbe:
  httpGet: {path: /livez, port: scheduler, scheme: HTTPS}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /livez, port: scheduler, scheme: HTTPS}
  periodSeconds: 10
  timeoutSeconds: 15
  failureThreshold: 8
readinessProbe:
  httpGet: {path: /readyz, port: scheduler, scheme: HTTPS}
  periodSeconds: 5
  timeoutSeconds: 15
  failureThreshold: 3
securityContext:
  {{- include "extender.confined" . | nindent 2 }}
volumeMounts:
  - name: configuration
    mountPath: /etc/scheduler-extender
    readOnly: true
{{- end -}}
