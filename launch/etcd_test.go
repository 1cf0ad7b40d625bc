// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// startEtcd starts an etcd for the test, and returns its address.
func startEtcd(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("etcd")
	if err != nil {
		t.Skip("there is no etcd here; Debian has it in the package etcd-server")
	}
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", freePort(t)), fmt.Sprintf("http://127.0.0.1:%d", freePort(t))
	var out output
	cmd := exec.Command(path, "--data-dir", t.TempDir(), "--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	out.await(t, "ready to serve client requests", 1)
	return strings.TrimPrefix(client, "http://")
}

const testToken = "0123456789abcdef0123456789abcdef"

func TestLaunchersFindEachOtherAtAnEtcd(t *testing.T) {
	t.Parallel()
	address := startEtcd(t)
	o := Options{Workers: 4, NumMachines: 2, Rendezvous: "etcd://" + address + "/jobs/one", Port: freePort(t), Command: []string{"join"},
		Environ: cleanEnviron("EPL_TOKEN=" + testToken)}
	statuses, outputs := several(t, o, o)
	all := sorted(strings.Join(outputs, ""))
	if statuses[0] != 0 || statuses[1] != 0 || all != "[0] worker 0 of 4 joined\n[1] worker 1 of 4 joined\n[2] worker 2 of 4 joined\n[3] worker 3 of 4 joined" {
		t.Errorf("statuses %v, got:\n%s", statuses, all)
	}

	client, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, Logger: zap.NewNop(), DialTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if answer, err := client.Get(t.Context(), "/", clientv3.WithPrefix()); err != nil || len(answer.Kvs) != 0 {
		t.Errorf("what they left: %v, %v", answer.Kvs, err)
	}
}

func TestASecondJobAtAnEtcdIsRefused(t *testing.T) {
	t.Parallel()
	url := "etcd://" + startEtcd(t) + "/jobs/one"
	mine := claim{Host: "first", Job: fingerprint(testToken), Workers: 2}
	rank, claims, leave, err := claimMachine(t.Context(), url, mine, 1)
	if err != nil || rank != 0 || len(claims) != 1 || claims[0].Host != "first" {
		t.Fatalf("rank %d, %v, %v", rank, claims, err)
	}
	for _, test := range []struct {
		name  string
		claim claim
		want  string
	}{
		{"the same again", mine, "epl: a job of 1 machines is running under /jobs/one at the etcd already; use another prefix"},
		{"another token", claim{Host: "b", Job: fingerprint("other"), Workers: 2}, "epl: another job is starting or running under /jobs/one at the etcd, from machine first: its EPL_TOKEN differs"},
		{"other numbers", claim{Host: "b", Job: mine.Job, Workers: 4}, "epl: machine first has --num_workers 2, this one 4"},
	} {
		if _, _, _, err := claimMachine(t.Context(), url, test.claim, 1); err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: got %v\nwant %s", test.name, err, test.want)
		}
	}
	leave()
	_, _, leave, err = claimMachine(t.Context(), url, claim{Host: "c", Job: fingerprint("other")}, 1)
	if err != nil {
		t.Fatalf("after its end: %v", err)
	}
	leave()
}
