{{- /* The container's requests and limits: scheduler/daemon/app/size.py has the same rule, with its reasons. */}}
{{- define "resources" -}}
{{- if not (hasKey .Values.clusterSize "nodes") -}}
{{- toYaml .Values.resources -}}
{{- else -}}
{{- $nodes := int64 .Values.clusterSize.nodes -}}
{{- $pods := int64 (dig "pods" (mul 30 $nodes) .Values.clusterSize) -}}
{{- $mib := 1048576 -}}
{{- $step := mul 128 $mib -}}
{{- $cluster := add (mul $nodes 20480) (mul $pods 3072) -}}
{{- $request := add (mul 96 $mib) $cluster -}}
{{- $limit := add (mul 296 $mib) (mul 2 $cluster) -}}
{{- $steps := add 1 (div (max 0 (sub $nodes 1)) 2500) -}}
requests:
  cpu: {{ mul 250 $steps }}m
  memory: {{ mul 128 (div (add $request (sub $step 1)) $step) }}Mi
limits:
  memory: {{ mul 128 (div (add $limit (sub $step 1)) $step) }}Mi
{{- end -}}
{{- end }}
