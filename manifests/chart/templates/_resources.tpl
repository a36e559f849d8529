{{- /* The container's requests and limits: scheduler/daemon/app/size.py has the same rule, with its reasons. */}}
{{- define "resources" -}}
{{- if not (hasKey .Values.clusterSize "nodes") -}}
{{- toYaml .Values.resources -}}
{{- else -}}
{{- $nodes := int64 .Values.clusterSize.nodes -}}
{{- $pods := int64 (dig "pods" (mul 30 $nodes) .Values.clusterSize) -}}
{{- $mib := 1048576 -}}
{{- $step := mul 128 $mib -}}
{{- $cluster := add (mul $nodes 6144) (mul $pods 1792) -}}
{{- $results := min (mul $nodes 14336) (mul 512 $mib) -}}
{{- $request := add (mul 168 $mib) $cluster $results -}}
{{- $limit := add (mul 368 $mib) (mul 2 $cluster) $results -}}
{{- $steps := add 1 (div (max 0 (sub $nodes 1)) 2500) -}}
requests:
  cpu: {{ min 1000 (mul 250 $steps) }}m
  memory: {{ mul 128 (div (add $request (sub $step 1)) $step) }}Mi
limits:
  memory: {{ mul 128 (div (add $limit (sub $step 1)) $step) }}Mi
{{- end -}}
{{- end }}
