{{- define "roles are asked for" -}}
which roles the daemon needs with these profiles, plugins and configuration is for custom-scheduler to say:
  helm template {{ .Release.Name }} CHART --namespace {{ .Release.Namespace }} VALUES --set rbac.create=false --show-only templates/config_map.yaml \
    | custom-scheduler check --rbac --service-account {{ .Release.Namespace }}/{{ .Release.Name }} --config-map {{ .Release.Namespace }}/{{ .Release.Name }}{{ if .Values.schedulerProfiles.enabled }} --scheduler-profiles{{ end }} - > roles.yaml
Give them with --set-file rbac.roles=roles.yaml, or make others and set rbac.create=false.
{{- end }}
