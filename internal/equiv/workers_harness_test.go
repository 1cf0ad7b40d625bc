// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"flag"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomlx/gomlx/ml/model"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/exec/local"
	"github.com/easyparallel/epl/rendezvous"
)

// Tests with several workers start this test binary again, once for each worker, to play a part.
const (
	partVariable   = "EPLTEST_PART"   // which
	folderVariable = "EPLTEST_FOLDER" // where the workers meet
	hostVariable   = "EPLTEST_HOST"   // where they meet instead: an address of the first worker

	backendVariable  = "EPLTEST_BACKEND"  // communication.backend
	colocateVariable = "EPLTEST_COLOCATE" // cluster.colocate_split_and_replicate
)

// parts are what workers can play. What they return is an error of the test.
var parts = map[string]func(w *part) error{}

func TestMain(m *testing.M) {
	flag.Parse()
	debug.SetGCPercent(400) // tests allocate much, and keep little
	local.LeastCommon = 1   // models are small
	if *onGPUs || os.Getenv("GOMLX_BACKEND") == fake {
		gpusForAll()
	}
	name := os.Getenv(partVariable)
	if name == "" {
		os.Exit(m.Run())
	}
	w := &part{folder: os.Getenv(folderVariable)}
	if err := w.play(name); err != nil {
		fmt.Printf("FAILED: %v\n", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// part is a worker in a test.
type part struct {
	folder string
	jobs   int
}

func (w *part) play(name string) error {
	if os.Getenv(backendVariable) == "mpi" { // it cannot be started twice, so one job lasts until the end
		env, err := w.init(nil)
		if err != nil {
			return err
		}
		defer env.Close()
	}
	return parts[name](w)
}

// init begins one more job with the other workers.
func (w *part) init(params map[string]any, opts ...epl.Option) (*epl.Env, error) {
	w.jobs++
	url := fmt.Sprintf("file://%s/job%d", w.folder, w.jobs)
	if host := os.Getenv(hostVariable); host != "" {
		url = "first://" + net.JoinHostPort(host, fmt.Sprint(29700+w.jobs))
	}
	if err := os.Setenv(rendezvous.EnvURL, url); err != nil {
		return nil, err
	}
	cfg, err := epl.NewConfig(w.params(params))
	if err != nil {
		return nil, err
	}
	return epl.Init(cfg, opts...)
}

// index is that of the worker.
func (w *part) index() int {
	i, err := strconv.Atoi(os.Getenv(cluster.EnvWorkerIndex))
	if err != nil {
		panic(err)
	}
	return i
}

// params adds what all parts want.
func (w *part) params(params map[string]any) map[string]any {
	all := map[string]any{"cluster.colocate_split_and_replicate": true, "communication.timeout": "1m"}
	if colocate := os.Getenv(colocateVariable); colocate != "" {
		all["cluster.colocate_split_and_replicate"] = colocate == "true"
	}
	if backend := os.Getenv(backendVariable); backend != "" {
		all["communication.backend"] = backend
	}
	maps.Copy(all, params)
	return all
}

// report lets the test compare what the workers found: their losses and variables. Where one worker compares these with what is right, it does so for all.
func (w *part) report(what string, run *Run) {
	h := sha256.New()
	fmt.Fprint(h, run.Losses)
	for v := range run.Store.IterVariables() {
		if !strings.HasPrefix(v.Path(), "/metrics/") && v.Name() != model.RNGStateVariableName { // paths of metrics are drawn at random, and each worker may have a seed
			fmt.Fprint(h, v.Path())
			_ = binary.Write(h, binary.LittleEndian, numbers(v.MustValue()))
		}
	}
	fmt.Printf("%s %x\n", what, h.Sum(nil))
}

// workers is a job for a test.
type workers struct {
	num, devices int
	hosts        string // as in EPL_WORKER_HOSTS; "": one host
	env          []string
	on           func(worker int) []string // a command that runs another one, somewhere else; nil: here
}

func (w workers) String() string {
	s := fmt.Sprintf("%dx%d", w.num, w.devices)
	if w.hosts != "" {
		s += " on " + w.hosts
	}
	return s
}

// play starts the workers, which play a part, and returns their outputs when all have ended.
func (w workers) play(t *testing.T, name string) (outputs []string, errs []error) {
	t.Helper()
	folder := t.TempDir()
	outputs, errs = make([]string, w.num), make([]error, w.num)
	var wg sync.WaitGroup
	for i := range w.num {
		cmd := w.command(t, folder, name, i)
		wg.Go(func() {
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			errs[i] = cmd.Run()
			outputs[i] = out.String()
		})
	}
	wg.Wait()
	return outputs, errs
}

// command is one worker.
func (w workers) command(t *testing.T, folder, name string, index int) *exec.Cmd {
	t.Helper()
	args := []string{os.Args[0], fmt.Sprintf("-test.short=%t", testing.Short())}
	if w.on != nil {
		args = append(w.on(index), args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), partVariable+"="+name, folderVariable+"="+folder,
		fmt.Sprintf("%s=%d", cluster.EnvNumWorkers, w.num), fmt.Sprintf("%s=%d", cluster.EnvWorkerIndex, index),
		fmt.Sprintf("%s=%d", cluster.EnvDevicesPerWorker, w.devices))
	if w.hosts != "" {
		cmd.Env = append(cmd.Env, cluster.EnvWorkerHosts+"="+w.hosts)
	}
	cmd.Env = append(cmd.Env, w.env...)
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// agree plays a part that must succeed on all workers, with the same report.
func (w workers) agree(t *testing.T, name string) {
	t.Helper()
	outputs, errs := w.play(t, name)
	for i, err := range errs {
		if err != nil {
			t.Errorf("worker %d: %v\n%s", i, err, outputs[i])
		} else if report(outputs[i]) != report(outputs[0]) {
			t.Errorf("worker %d has other results than worker 0:\n%s\n%s", i, outputs[i], outputs[0])
		}
	}
	if !strings.Contains(report(outputs[0]), " ") {
		t.Errorf("there is no report: %q", outputs[0])
	}
}

// notice is a line that EPL logs: the first worker says it for all, or it is about connections, of which each has its own.
var notice = regexp.MustCompile(`(?m)^(\d{4}/\d\d/\d\d \d\d:\d\d:\d\d )?epl: .*\n`)

// report is what a worker says of its results.
func report(output string) string { return notice.ReplaceAllString(output, "") }

// layouts of jobs: shared memory, TCP, both.
var layouts = []workers{
	{num: 2, devices: 1},
	{num: 2, devices: 2, hosts: "a,b"},
	{num: 4, devices: 1},
	{num: 4, devices: 1, hosts: "a,a,b,b"},
}
