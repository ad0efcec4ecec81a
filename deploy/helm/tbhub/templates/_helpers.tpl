{{- define "tbhub.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "tbhub.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tbhub.labels" -}}
{{ include "tbhub.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "tbhub.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "tbhub.name" .) }}
{{- end }}

{{- define "tbhub.image" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion -}}
{{ .Values.image.repository }}{{ if not (hasPrefix "@" $tag) }}:{{ end }}{{ $tag }}
{{- end }}

{{- define "tbhub.hostname" -}}
{{ (urlParse .).hostname }}
{{- end }}

{{- /* The environment of the service; secrets come from the Secret. */ -}}
{{- define "tbhub.env" -}}
{{- /* Prometheus asks the pods by their addresses. */}}
- name: POD_IP
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
- name: TBHUB_PUBLIC_URL
  value: {{ .Values.publicUrl | quote }}
- name: TBHUB_CONTENT_URL
  value: {{ .Values.contentUrl | quote }}
{{- if not (hasKey .Values.settings "TBHUB_ALLOWED_HOSTS") }}
- name: TBHUB_ALLOWED_HOSTS
  value: {{ list (include "tbhub.hostname" .Values.publicUrl) "127.0.0.1" "$(POD_IP)" | toJson | quote }}
{{- end }}
{{- with .Values.trustedProxies }}
- name: TBHUB_TRUSTED_PROXIES
  value: {{ . | quote }}
{{- end }}
- name: TBHUB_WORKERS
  value: {{ .Values.workers | quote }}
{{- if .Values.grpc.enabled }}
- name: TBHUB_GRPC_PORT
  value: {{ .Values.grpc.port | quote }}
- name: TBHUB_GRPC_PLAINTEXT
  value: "true"
{{- end }}
{{- range $name, $value := .Values.settings }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}

{{- define "tbhub.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "tbhub.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}
