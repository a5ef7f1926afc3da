{{/* The full name of every object. */}}
{{- define "rbdagent.fullname" -}}
{{- $own := .Values.nameOverride | default "rbdagent" -}}
{{- $name := contains $own .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $own) -}}
{{- .Values.fullnameOverride | default $name | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{/* The account that the agents run as. */}}
{{- define "rbdagent.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "rbdagent.fullname" .) -}}
{{- end }}

{{/* The image: [REGISTRY/]REPOSITORY:TAG[@DIGEST]. A runtime uses the digest if there is one. */}}
{{- define "rbdagent.image" -}}
{{- with (.Values.global).imageRegistry | default .Values.image.registry }}{{ . }}/{{ end -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- with .Values.image.digest }}@{{ . }}{{ end -}}
{{- end }}

{{/*
The labels that select the agents' pods. The name is constant: the kubectl plugin and the alerts select
the pods by it. The selector of a DaemonSet cannot change, so it has no other labels.
*/}}
{{- define "rbdagent.selector" -}}
app.kubernetes.io/name: rbdagent
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The labels of every object: those of the chart, then commonLabels with other keys. */}}
{{- define "rbdagent.labels" -}}
{{- $own := include "rbdagent.selector" . | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/version" .Chart.AppVersion -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" .Release.Service -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_") -}}
{{- merge $own .Values.commonLabels | toYaml -}}
{{- end }}

{{/* The labels of an object that has further ones: (dict "root" . "more" LABELS). */}}
{{- define "rbdagent.labelsWith" -}}
{{- merge (include "rbdagent.labels" .root | fromYaml) .more | toYaml -}}
{{- end }}

{{/*
Whether admission policies are rendered: not empty if they are. It depends on the version and not on
.Capabilities.APIVersions, which lacks them if helm does not query the cluster: the output of helm
template must not be less safe.
*/}}
{{- define "rbdagent.guarded" -}}
{{- if and .Values.admissionPolicy.enabled (semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version) }}yes{{ end -}}
{{- end }}

{{/* A file of the chart, unchanged: its placeholders belong to Prometheus and Grafana, not to Helm. */}}
{{- define "rbdagent.file" -}}
{{- .root.Files.Get .path | required (printf "%s is missing from this copy of the chart" .path) -}}
{{- end }}

{{/* The seconds of a duration, such as 1h30m. */}}
{{- define "rbdagent.seconds" -}}
{{- $hours := regexFind "[0-9]+h" . | trimSuffix "h" | int -}}
{{- $minutes := regexFind "[0-9]+m" . | trimSuffix "m" | int -}}
{{- $seconds := regexFind "[0-9]+s" . | trimSuffix "s" | int -}}
{{- add (mul $hours 3600) (mul $minutes 60) $seconds -}}
{{- end }}

{{/*
An expression with another number at the end of one of its lines: (dict "expr" TEXT "number" OLD "seconds"
NEW). It fails if no line ends with the old number: files/alerts.yaml has changed.
*/}}
{{- define "rbdagent.threshold" -}}
{{- $end := printf "(?m)> %s$" .number -}}
{{- if not (regexMatch $end .expr) }}{{ fail (printf "files/alerts.yaml: no line ends with > %s: %s" .number .expr) }}{{ end -}}
{{- regexReplaceAll $end .expr (printf "> %s" .seconds) -}}
{{- end }}

{{/* The groups of the PrometheusRule: files/alerts.yaml with the values of prometheusRule. */}}
{{- define "rbdagent.alerts" -}}
{{- $given := .Values.prometheusRule -}}
{{- $found := include "rbdagent.file" (dict "root" . "path" "files/alerts.yaml") | fromYaml -}}
{{- $orphaned := include "rbdagent.seconds" ($given.thresholds.orphaned | default .Values.unmap.gracePeriod) -}}
{{- $resyncs := include "rbdagent.seconds" .Values.resync | int | mul 5 | toString -}}
{{- $incomplete := empty $given.thresholds.incomplete | ternary $resyncs (include "rbdagent.seconds" $given.thresholds.incomplete) -}}
{{- $names := list -}}
{{- range $group := $found.groups }}
{{- $rules := list -}}
{{- range $rule := $group.rules }}
{{- $names = append $names $rule.alert -}}
{{- if eq $rule.alert "RBDMappingOrphaned" }}
{{- $_ := set $rule "expr" (include "rbdagent.threshold" (dict "expr" $rule.expr "number" "600" "seconds" $orphaned)) -}}
{{- else if eq $rule.alert "RBDAgentObservationFailing" }}
{{- $_ := set $rule "expr" (include "rbdagent.threshold" (dict "expr" $rule.expr "number" "300" "seconds" $incomplete)) -}}
{{- end }}
{{- with get $given.thresholds.for $rule.alert }}{{ $_ := set $rule "for" . }}{{ end -}}
{{- with $given.runbookUrl }}
{{- $_ := set $rule.annotations "runbook_url" (printf "%s/%s.md" (trimSuffix "/" .) $rule.alert) -}}
{{- end }}
{{- if not (has $rule.alert $given.disabled) }}{{ $rules = append $rules $rule }}{{ end -}}
{{- end }}
{{- $_ := set $group "rules" $rules -}}
{{- end }}
{{- range concat $given.disabled (keys $given.thresholds.for | sortAlpha) }}
{{- if not (has . $names) }}
{{- fail (printf "prometheusRule: there is no alert %s; there are: %s" . ($names | uniq | join ", ")) }}
{{- end }}
{{- end }}
{{- with $given.additionalRules }}
{{- $_ := set $found "groups" (append $found.groups (dict "name" "rbdagent.additional" "rules" .)) -}}
{{- end }}
{{- toYaml $found -}}
{{- end }}

{{/* One cluster's ceph.conf that the chart writes; empty if the user's ConfigMap has it. */}}
{{- define "rbdagent.cephConf" -}}
{{- if .config -}}
{{ .config }}
{{- else if .monitorsFrom -}}
# The agents read the monitors from a ConfigMap: monitors-from in config.toml.
[global]
{{ end -}}
{{- end }}

{{/* The SecurityContextConstraints of OpenShift that admit the agents' pods; empty if none is needed. */}}
{{- define "rbdagent.scc" -}}
{{- with .Values.securityContextConstraints -}}
{{- if .create }}{{ .name | default (include "rbdagent.fullname" $) }}{{ else }}{{ .name }}{{ end -}}
{{- end -}}
{{- end }}

{{/* Refuse what the schema cannot report clearly. */}}
{{- define "rbdagent.validate" -}}
{{- range $name, $example := dict "kubeletRoot" "/var/lib/kubelet" "stateDir" "/var/lib/rbdagent" "freezeDir" "/etc/rbdagent" }}
{{- $path := get $.Values $name }}
{{- if not (regexMatch "^/[^\"\\\\]*[^/\"\\\\]$" $path) }}
{{- fail (printf "%s is %q: give the absolute path of a directory on the nodes, without a slash at its end, a quote or a backslash, such as %s" $name $path $example) }}
{{- end }}
{{- end }}
{{- if eq (int .Values.port) (int .Values.probePort) }}
{{- fail (printf "port and probePort are equal (%d): kubelet's probes need a separate port" (int .Values.port)) }}
{{- end }}
{{- $names := list -}}
{{- range $cluster := .Values.ceph.clusters }}
{{- if has .name $names }}
{{- fail (printf "ceph.clusters: two are named %s" .name) }}
{{- end }}
{{- $names = append $names .name -}}
{{- if hasPrefix "client." (.id | default "") }}
{{- fail (printf "ceph.clusters, %s: id is %s: write it without \"client.\"" .name .id) }}
{{- end }}
{{- $configs := list .monitorsFrom .config .configMap | compact }}
{{- if ne (len $configs) 1 }}
{{- fail (printf "ceph.clusters, %s: give one of monitorsFrom, config, configMap (there are %d)" .name (len $configs)) }}
{{- end }}
{{- with .monitorsFrom }}
{{- if not (or .clusterID (eq (.key | default "") "data")) }}
{{- fail (printf "ceph.clusters, %s: monitorsFrom.clusterID is missing: ConfigMap %s/%s lists several clusters" $cluster.name .namespace .configMap) }}
{{- end }}
{{- end }}
{{- $keys := list .keyringSecret .keySecret .keyring | compact }}
{{- if ne (len $keys) 1 }}
{{- fail (printf "ceph.clusters, %s: give one of keyringSecret, keySecret, keyring (there are %d)" .name (len $keys)) }}
{{- end }}
{{- end }}
{{- if not (or .Values.serviceAccount.create .Values.serviceAccount.name) }}
{{- fail "serviceAccount.name is empty and serviceAccount.create is false: name the account. The account default would give every pod of the namespace the agents' permissions" }}
{{- end }}
{{- if and (eq .Values.mode "unmap") (not .Values.ceph.clusters) }}
{{- fail "mode unmap needs ceph.clusters: without Ceph no mapping can be reported as orphaned, and nothing is ever unmapped" }}
{{- end }}
{{- end }}
