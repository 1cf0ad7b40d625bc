// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/rendezvous"
)

// DefaultImage is the image that manifests name unless told otherwise. deploy/Dockerfile builds it.
const DefaultImage = "epl:latest"

// Where the pods find the files of the secret NAME-tls, and the plan of the ConfigMap NAME-plan.
const (
	tlsFolder  = "/etc/epl/tls"
	planFolder = "/etc/epl/plan"
	planKey    = "plan.json"
)

// queueLabel names the LocalQueue of Kueue.
const queueLabel = "kueue.x-k8s.io/queue-name"

// graceOfPods is how much longer than its workers a pod may take to end.
const graceOfPods = 5 * time.Second

// generateKubernetes writes the manifests of a job: a Secret with its token, a headless Service that gives each pod a name,
// an Indexed Job with a pod for each worker, and a ConfigMap with the plan if there is one. A JobSet has a Service of its own.
func generateKubernetes(w io.Writer, kind string, o Options, token string) error {
	if o.NumMachines != 0 {
		return errors.New("epl: --num_machines: Kubernetes places the pods itself, one for each worker; leave it out")
	}
	name := jobName(o)
	objects := []any{tokenSecret(name, token), service(name, o), indexedJob(name, name, o)}
	if kind == "jobset" {
		objects = []any{tokenSecret(name, token), newJobSet(name, o)}
	}
	if o.Plan != "" {
		plan, err := planMap(name, o.Plan)
		if err != nil {
			return err
		}
		objects = append(objects, plan)
	}
	for i, object := range objects {
		text, err := yaml.Marshal(object)
		if err != nil {
			return errors.Wrap(err, "epl: internal error: a manifest")
		}
		if i > 0 {
			fmt.Fprintln(w, "---")
		}
		// The API types write what the server fills in later.
		text = bytes.ReplaceAll(text, []byte("status: {}\n"), nil)
		text = bytes.ReplaceAll(text, []byte("status:\n  loadBalancer: {}\n"), nil)
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	return nil
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{"app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "epl-launch"}}
}

func tokenSecret(name, token string) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: meta(name),
		Type:       corev1.SecretTypeOpaque,
		StringData: map[string]string{"token": token},
	}
}

// planMap carries the plan.
func planMap(name, file string) (*corev1.ConfigMap, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, errors.Errorf("epl: --plan %s: %v", file, err)
	}
	if len(text) > corev1.MaxSecretSize { // the limit of both
		return nil, errors.Errorf("epl: --plan %s has %d bytes, and a ConfigMap of Kubernetes at most %d: put it into the image, and name it there by %s",
			file, len(text), corev1.MaxSecretSize, envPlanFile)
	}
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: meta(name + "-plan"),
		Data:       map[string]string{planKey: string(text)},
	}, nil
}

// service lets pods find each other by name before they are ready.
func service(name string, o Options) *corev1.Service {
	port := int32(o.port())
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: meta(name),
		Spec: corev1.ServiceSpec{
			ClusterIP:                corev1.ClusterIPNone,
			PublishNotReadyAddresses: true,
			Selector:                 map[string]string{batchv1.JobNameLabel: name},
			Ports:                    []corev1.ServicePort{{Name: "rendezvous", Port: port, TargetPort: intstr.FromInt32(port)}},
		},
	}
}

// indexedJob is the Job with a pod for each worker. pods is what their names begin with.
func indexedJob(name, pods string, o Options) *batchv1.Job {
	workers := int32(max(o.Workers, 1) + o.Spares)
	var hosts []string
	for i := range workers {
		hosts = append(hosts, fmt.Sprintf("%s-%d.%s", pods, i, name))
	}
	env := []corev1.EnvVar{
		{Name: cluster.EnvNumWorkers, Value: fmt.Sprint(workers)},
		{Name: cluster.EnvWorkerHosts, Value: strings.Join(hosts, ",")},
		{Name: rendezvous.EnvURL, Value: fmt.Sprintf("first://%s:%d", hosts[0], o.port())},
		{Name: rendezvous.EnvToken, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: "token"}}},
	}
	container := corev1.Container{Name: "worker", Image: o.Image, Command: slices.Concat([]string{"epl-launch"}, o.launcherFlags(), o.Command)}
	if container.Image == "" {
		container.Image = DefaultImage
	}
	pod := corev1.PodSpec{Subdomain: name, RestartPolicy: corev1.RestartPolicyNever, TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: &metav1.LabelSelector{MatchLabels: meta(name).Labels}}}}
	var restarts int32                                                          // a worker alone cannot join again
	policy := &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{ // what is started wrongly would be so again
		Action: batchv1.PodFailurePolicyActionFailJob, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
			ContainerName: &container.Name, Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{badInput}}}}}
	if o.MinWorkers > 0 { // but a launcher can; pods that Kubernetes takes away are not failures
		restarts = int32(o.MaxRestarts) * workers
		policy.Rules = append(policy.Rules, batchv1.PodFailurePolicyRule{Action: batchv1.PodFailurePolicyActionIgnore,
			OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}})
	}
	if o.Grace > 0 {
		seconds := int64((o.Grace + graceOfPods).Seconds())
		pod.TerminationGracePeriodSeconds = &seconds
	}
	mount := func(name, folder string, source corev1.VolumeSource) {
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: source})
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: folder, ReadOnly: source.EmptyDir == nil})
	}
	mount("shm", "/dev/shm", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}) // else it has 64 MiB
	if o.DevicesPerWorker > 0 {
		env = append(env, corev1.EnvVar{Name: cluster.EnvDevicesPerWorker, Value: itoa(o.DevicesPerWorker)})
		if o.GPUs {
			container.Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(int64(o.DevicesPerWorker), resource.DecimalSI)}
		}
	}
	if o.TLSCert != "" {
		for _, file := range [][2]string{{rendezvous.EnvTLSCert, o.TLSCert}, {rendezvous.EnvTLSKey, o.TLSKey}, {rendezvous.EnvTLSCA, o.TLSCA}} {
			env = append(env, corev1.EnvVar{Name: file[0], Value: path.Join(tlsFolder, path.Base(file[1]))})
		}
		mount("tls", tlsFolder, corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name + "-tls"}})
	}
	if o.Plan != "" {
		env = append(env, corev1.EnvVar{Name: envPlanFile, Value: path.Join(planFolder, planKey)})
		mount("plan", planFolder, corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: name + "-plan"}}})
	}
	container.Env = env
	pod.Containers = []corev1.Container{container}
	indexed := batchv1.IndexedCompletion
	job := &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: meta(name),
		Spec: batchv1.JobSpec{
			CompletionMode: &indexed, Completions: &workers, Parallelism: &workers,
			BackoffLimit: &restarts, PodFailurePolicy: policy,
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: meta(name).Labels}, Spec: pod},
		},
	}
	job.Spec.Suspend = o.queued(&job.ObjectMeta)
	return job
}

// queued labels an object for Kueue, which starts it when there is room, and returns whether it is suspended until then.
func (o Options) queued(m *metav1.ObjectMeta) *bool {
	if o.Queue == "" {
		return nil
	}
	m.Labels[queueLabel] = o.Queue
	suspended := true
	return &suspended
}

// jobSet is what a JobSet has that we need: its API is of a project of its own (jobset.sigs.k8s.io), whose pods are called SET-JOB-0-INDEX.
type jobSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              jobSetSpec `json:"spec"`
}

type jobSetSpec struct {
	Network struct {
		EnableDNSHostnames       bool   `json:"enableDNSHostnames"`
		Subdomain                string `json:"subdomain"`
		PublishNotReadyAddresses bool   `json:"publishNotReadyAddresses"`
	} `json:"network"`
	ReplicatedJobs []replicatedJob `json:"replicatedJobs"`
	Suspend        *bool           `json:"suspend,omitempty"`
}

type replicatedJob struct {
	Name     string                  `json:"name"`
	Replicas int                     `json:"replicas"`
	Template batchv1.JobTemplateSpec `json:"template"`
}

func newJobSet(name string, o Options) *jobSet {
	const group = "workers"
	plain := o
	plain.Queue = "" // the set waits, not its job
	job := indexedJob(name, fmt.Sprintf("%s-%s-0", name, group), plain)
	set := &jobSet{TypeMeta: metav1.TypeMeta{APIVersion: "jobset.x-k8s.io/v1alpha2", Kind: "JobSet"}, ObjectMeta: meta(name)}
	set.Spec.Network.EnableDNSHostnames, set.Spec.Network.Subdomain, set.Spec.Network.PublishNotReadyAddresses = true, name, true
	set.Spec.ReplicatedJobs = []replicatedJob{{group, 1, batchv1.JobTemplateSpec{Spec: job.Spec}}}
	set.Spec.Suspend = o.queued(&set.ObjectMeta)
	return set
}
