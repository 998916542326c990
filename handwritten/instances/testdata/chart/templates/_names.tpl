{{- define "model" -}}
{{- $text := .Values.instance.values.model | default "" -}}
{{- if eq .Values.instance.application "paperclip" -}}
{{- $text = dig "agentExecution" "defaultModel" $text .Values.instance.values -}}
{{- end -}}
{{- $text | trimPrefix "openai/" | trimPrefix "litellm/" | default "CHANGEME_MODEL" -}}
{{- end -}}

{{- define "service" -}}
{{- if eq .Values.instance.application "kubeopencode" -}}
{{- .Values.instance.values.name -}}
{{- else -}}
{{- .Values.instance.name -}}
{{- end -}}
{{- end -}}

{{- define "metadata" }}
  name: {{ include "service" . }}
  namespace: {{ .Values.instance.namespace }}
  labels:
    app.kubernetes.io/name: {{ .Values.instance.application }}
    app.kubernetes.io/instance: {{ .Values.instance.name }}
    app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}
