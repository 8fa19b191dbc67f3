{{- /* Prefix of the names of objects in the release's namespace. A release's name may have dots, a Service's may not. */ -}}
{{- define "kai-cp.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimAll "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | replace "." "-" | trunc 40 | trimAll "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | replace "." "-" | trunc 40 | trimAll "-" -}}
{{- end -}}
{{- end -}}

{{- /* Prefix of the names of cluster-wide objects: two releases of one name live in two namespaces. */ -}}
{{- define "kai-cp.clustername" -}}
{{- printf "%s-%s" .Release.Namespace (include "kai-cp.fullname" .) -}}
{{- end -}}

{{- define "kai-cp.selector" -}}
app.kubernetes.io/name: kai-cp
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "kai-cp.labels" -}}
{{ include "kai-cp.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* Labels with more of them, which win: a key that is there twice is an error. Argument: list of root and labels. */ -}}
{{- define "kai-cp.labelsWith" -}}
{{ mustMergeOverwrite (include "kai-cp.labels" (index . 0) | fromYaml) (index . 1) | toYaml }}
{{- end -}}

{{- define "kai-cp.image" -}}
{{- $image := .Values.image -}}
{{- $name := $image.repository -}}
{{- if $image.registry -}}{{- $name = printf "%s/%s" (trimSuffix "/" $image.registry) $name -}}{{- end -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (default .Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}

{{- /* Whether our binder is installed: what observes or advises binds nothing. */ -}}
{{- define "kai-cp.binds" -}}
{{- if and (eq .Values.mode "enforce") .Values.binder.enabled -}}true{{- end -}}
{{- end -}}

{{- /* Whether anything installed writes more than its own status: a scheduler that observes does not, controllers do. */ -}}
{{- define "kai-cp.writes" -}}
{{- if or (ne .Values.mode "observe") .Values.controllers.enabled -}}true{{- end -}}
{{- end -}}

{{- /*
A Deployment. Argument: dict with root, component ("scheduler"), name, process (values of Process), resources,
args (list), settings (name of a ConfigMap, or "") and checksum.
*/ -}}
{{- define "kai-cp.deployment" -}}
{{- $root := .root -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "kai-cp.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  replicas: {{ .process.replicas }}
  {{- if eq .component "admission" }}
  # Who creates a pod waits for it: a new one answers before an old one goes.
  strategy:
    rollingUpdate: {maxUnavailable: 0, maxSurge: 1}
  {{- end }}
  selector:
    matchLabels:
      {{- include "kai-cp.selector" $root | nindent 6 }}
      app.kubernetes.io/component: {{ .component }}
      kai-cp/process: {{ .name }}
  template:
    metadata:
      labels:
        {{- include "kai-cp.labelsWith" (list $root .process.podLabels) | nindent 8 }}
        app.kubernetes.io/component: {{ .component }}
        kai-cp/process: {{ .name }}
      {{- if or .process.podAnnotations .checksum }}
      annotations:
        {{- with .checksum }}
        checksum/settings: {{ . }}
        {{- end }}
        {{- with .process.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
    spec:
      serviceAccountName: {{ include "kai-cp.fullname" $root }}-{{ .component }}
      {{- with $root.Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .process.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      securityContext:
        runAsNonRoot: true
        {{- if not $root.Values.openshift }}
        runAsUser: 10000
        runAsGroup: 10000
        {{- end }}
        seccompProfile: {type: RuntimeDefault}
      {{- with .process.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .process.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .process.topologySpreadConstraints }}
      topologySpreadConstraints:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      affinity:
        {{- if .process.affinity }}
        {{- toYaml .process.affinity | nindent 8 }}
        {{- else }}
        podAntiAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
            - weight: 100
              podAffinityTerm:
                topologyKey: kubernetes.io/hostname
                labelSelector:
                  matchLabels:
                    {{- include "kai-cp.selector" $root | nindent 20 }}
                    kai-cp/process: {{ .name }}
        {{- end }}
      containers:
        - name: {{ .component }}
          image: {{ include "kai-cp.image" $root }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args:
            {{- toYaml .args | nindent 12 }}
          {{- with .process.extraEnv }}
          env:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          ports:
            - {name: metrics, containerPort: 8080}
            {{- if eq .component "admission" }}
            - {name: webhook, containerPort: 9443}
            {{- end }}
          livenessProbe:
            httpGet: {path: /healthz, port: metrics}
            initialDelaySeconds: 30
            periodSeconds: 20
            timeoutSeconds: 5
          readinessProbe:
            httpGet: {path: /readyz, port: metrics}
            periodSeconds: 5
            timeoutSeconds: 5
          {{- with .resources }}
          resources:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
          volumeMounts:
            - {name: tmp, mountPath: /tmp}
            {{- if .settings }}
            - {name: settings, mountPath: /etc/kai-cp, readOnly: true}
            {{- end }}
      volumes:
        - name: tmp
          emptyDir: {medium: Memory, sizeLimit: 64Mi}
        {{- if .settings }}
        - name: settings
          configMap:
            name: {{ .settings }}
        {{- end }}
{{- end -}}

{{- /* Flags that every process has. */ -}}
{{- define "kai-cp.commonArgs" -}}
- --leader-elect
- --namespace={{ .Release.Namespace }}
- --listen-address=:8080
- -v
- "{{ .Values.logLevel }}"
{{- end -}}
