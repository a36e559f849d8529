{{- /* The labels of every object. The name is that of the release, to distinguish the pods of two releases. */}}
{{- define "labels" -}}
app.kubernetes.io/name: {{ quote .Release.Name }}
app.kubernetes.io/component: scheduler
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "metadata" -}}
name: {{ quote .Release.Name }}
namespace: {{ quote .Release.Namespace }}
labels: {{- include "labels" . | nindent 2 }}
{{- end }}
