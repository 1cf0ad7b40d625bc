// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (rewrite it with -update):\n%s", path, got)
	}
}

func checked(t *testing.T, o Options) Options {
	t.Helper()
	if err := o.check(); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestTheScriptForSlurm(t *testing.T) {
	for name, o := range map[string]Options{
		"slurm.sh":         {Workers: 4, Command: []string{"./train", "--name", "it's me"}},
		"slurm-elastic.sh": {Workers: 8, MinWorkers: 4, MaxRestarts: 3, RestartDelay: time.Minute, NumMachines: 8, Command: []string{"./train"}},
		"slurm-nodes.sh":   {Workers: 8, NumMachines: 2, DevicesPerWorker: 2, GPUs: true, TaskLabel: "bert", LogDir: "logs", Command: []string{"./train"}},
	} {
		var b bytes.Buffer
		if err := generateSlurm(&b, checked(t, o)); err != nil {
			t.Fatal(err)
		}
		golden(t, name, b.String())
	}
}

func TestTheManifestsForKubernetes(t *testing.T) {
	for name, o := range map[string]Options{
		"k8s.yaml":         {Workers: 2, Image: "registry.example/train:1", Command: []string{"/app/train", "--steps=10"}},
		"k8s-elastic.yaml": {Workers: 2, MinWorkers: 1, MaxRestarts: 3, Grace: time.Minute, Queue: "research", Command: []string{"./train"}},
		"k8s-gpu.yaml":     {Workers: 2, DevicesPerWorker: 4, GPUs: true, TaskLabel: "bert_large", TLSCert: "w.crt", TLSKey: "w.key", TLSCA: "ca.crt", Command: []string{"./train"}},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := generateKubernetes(&b, "k8s", checked(t, o), "TOKEN"); err != nil {
				t.Fatal(err)
			}
			golden(t, name, b.String())

			var secret corev1.Secret
			var service corev1.Service
			var job batchv1.Job
			documents := strings.Split(b.String(), "---\n")
			for i, object := range []any{&secret, &service, &job} {
				if err := yaml.UnmarshalStrict([]byte(documents[i]), object); err != nil {
					t.Errorf("document %d: %v", i, err)
				}
			}
			pod := job.Spec.Template.Spec
			if *job.Spec.CompletionMode != batchv1.IndexedCompletion || *job.Spec.Completions != 2 || *job.Spec.Parallelism != 2 {
				t.Errorf("the job: %+v", job.Spec)
			}
			if pod.Subdomain != service.Name || service.Spec.Selector[batchv1.JobNameLabel] != job.Name || service.Spec.ClusterIP != "None" {
				t.Error("the pods have no names")
			}
			env := map[string]corev1.EnvVar{}
			for _, v := range pod.Containers[0].Env {
				env[v.Name] = v
			}
			if url := env["EPL_RDZV"].Value; url != "first://"+job.Name+"-0."+service.Name+":29870" {
				t.Errorf("they meet at %s", url)
			}
			if from := env["EPL_TOKEN"].ValueFrom; from == nil || from.SecretKeyRef.Name != secret.Name || secret.StringData[from.SecretKeyRef.Key] != "TOKEN" {
				t.Errorf("the token: %+v", from)
			}
		})
	}
}

func TestAJobSetHasTheSamePodsUnderOtherNames(t *testing.T) {
	var b bytes.Buffer
	o := checked(t, Options{Workers: 2, Queue: "research", Command: []string{"./train"}})
	if err := generateKubernetes(&b, "jobset", o, "TOKEN"); err != nil {
		t.Fatal(err)
	}
	golden(t, "k8s-jobset.yaml", b.String())
	var set jobSet
	if err := yaml.UnmarshalStrict([]byte(strings.Split(b.String(), "---\n")[1]), &set); err != nil {
		t.Fatal(err)
	}
	job := set.Spec.ReplicatedJobs[0].Template.Spec
	want := indexedJob("train", "train", o)
	for _, v := range job.Template.Spec.Containers[0].Env {
		if v.Name == "EPL_RDZV" && v.Value != "first://train-workers-0-0.train:29870" {
			t.Errorf("they meet at %s", v.Value)
		}
	}
	if *set.Spec.Suspend != true || job.Suspend != nil || set.Labels[queueLabel] != "research" || *job.Completions != *want.Spec.Completions || job.Template.Spec.Subdomain != set.Spec.Network.Subdomain {
		t.Errorf("the set is\n%s", b.String())
	}
}

func TestTheManifestsForKubernetesCarryThePlan(t *testing.T) {
	file := filepath.Join(t.TempDir(), "my plan.json")
	const plan = "{\n  \"version\": 1\n}\n"
	if err := os.WriteFile(file, []byte(plan), 0o644); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	o := checked(t, Options{Workers: 2, Plan: file, Command: []string{"./train"}})
	if err := generateKubernetes(&b, "k8s", o, "TOKEN"); err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(b.String(), "---\n")
	var job batchv1.Job
	var carried corev1.ConfigMap
	for i, object := range []any{&job, &carried} {
		if err := yaml.UnmarshalStrict([]byte(documents[2+i]), object); err != nil {
			t.Fatal(err)
		}
	}
	pod := job.Spec.Template.Spec
	env := pod.Containers[0].Env[len(pod.Containers[0].Env)-1]
	mount := pod.Containers[0].VolumeMounts[1]
	if env.Name != "EPL_PLAN_FILE" || carried.Data[strings.TrimPrefix(env.Value, mount.MountPath+"/")] != plan || pod.Volumes[1].ConfigMap.Name != carried.Name {
		t.Errorf("the plan does not reach the pods:\n%s", b.String())
	}
	if err := os.Truncate(file, 2<<20); err != nil {
		t.Fatal(err)
	}
	if err := generateKubernetes(&b, "k8s", o, "TOKEN"); err == nil || !strings.Contains(err.Error(), "a ConfigMap of Kubernetes at most 1048576") {
		t.Errorf("a plan that is too large gives %v", err)
	}
}

func TestJobsAreNamedAsSchedulersLike(t *testing.T) {
	for want, o := range map[string]Options{
		"train":      {Command: []string{"./bin/train.sh"}},
		"quickstart": {Command: []string{"go", "run", "./examples/quickstart", "-x"}},
		"bert-large": {TaskLabel: "BERT_large", Command: []string{"x"}},
		"epl-7b":     {TaskLabel: "7b", Command: []string{"x"}},
		"epl":        {TaskLabel: "__", Command: []string{"x"}},
	} {
		if got := jobName(o); got != want {
			t.Errorf("%v: got %q, want %q", o.Command, got, want)
		}
	}
}
