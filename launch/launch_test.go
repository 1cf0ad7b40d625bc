// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/internal/cores"
	"github.com/easyparallel/epl/rendezvous"
)

// The test binary is also the launcher's helper forms, a launcher, and the workers: what it does is its first argument.
// sleep never returns. (An empty select would end a program that does nothing else.)
func sleep() {
	for {
		time.Sleep(time.Hour)
	}
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		signals := make(chan os.Signal, 4)
		switch os.Args[1] {
		case "--guard":
			Guard(os.Stdin)
			os.Exit(0)
		case "--agent":
			signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
			os.Exit(Agent(os.Stdin, os.Stdout, signals, os.Args[:1]))
		case "launcher":
			signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
			var j jobOptions
			if err := json.Unmarshal([]byte(os.Args[2]), &j); err != nil {
				panic(err)
			}
			status, err := Run(context.Background(), Options{
				Command: j.Command, Workers: j.Workers, Hosts: j.Hosts, Port: j.Port, SSH: j.SSH, Signals: signals})
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
			os.Exit(status)
		}
		if worker, ok := workers[os.Args[1]]; ok {
			os.Exit(worker(os.Args[2:]))
		}
	}
	os.Exit(m.Run())
}

// jobOptions are those that a launcher in a process of its own is told.
type jobOptions struct {
	Command, SSH  []string
	Workers, Port int
	Hosts         string
}

// workers are small programs, by name.
var workers = map[string]func(args []string) int{
	// say prints its arguments.
	"say": func(args []string) int {
		for _, arg := range args {
			fmt.Print(arg)
		}
		return 0
	},
	// variables prints some of its environment.
	"variables": func(args []string) int {
		for _, name := range args {
			fmt.Printf("%s=%s\n", name, os.Getenv(name))
		}
		return 0
	},
	// cores prints which cores it may use, and how many threads.
	"cores": func([]string) int {
		fmt.Printf("cores %s, %d threads\n", cores.Text(cores.Mine()), runtime.GOMAXPROCS(0))
		return 0
	},
	// exit prints lines and exits with the status that belongs to its index; with one below 0 it kills itself, and with none
	// it waits to be ended.
	"exit": func(args []string) int {
		me := os.Getenv(cluster.EnvWorkerIndex)
		for i := range 30 {
			fmt.Printf("line %d of %s\n", i, me)
		}
		index, _ := strconv.Atoi(me)
		if index >= len(args) {
			sleep()
		}
		status, _ := strconv.Atoi(args[index])
		if status < 0 {
			syscall.Kill(os.Getpid(), syscall.Signal(-status))
		}
		return status
	},
	// sleep says its number and that of a child in a session of its own, and waits; with "stubborn" it ignores signals.
	"sleep": func(args []string) int {
		if slices.Contains(args, "stubborn") {
			signal.Ignore(syscall.SIGINT, syscall.SIGTERM)
		}
		if !slices.Contains(args, "child") {
			child := exec.Command(os.Args[0], append([]string{"sleep", "child"}, args...)...)
			child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			child.Stdout = os.Stdout
			if err := child.Start(); err != nil {
				return 9
			}
			fmt.Println("pid", child.Process.Pid)
		}
		fmt.Println("pid", os.Getpid())
		sleep()
		return 0
	},
	// join joins the rendezvous, and leaves it again; with "fail" worker 1 fails, with "give up" it says why before that, and
	// the others say why they stop. With "disagree" nobody is to blame.
	"join": func(args []string) int {
		job, found, err := rendezvous.FromEnvironment(os.LookupEnv)
		if err != nil || !found {
			fmt.Println(found, err)
			return 8
		}
		c, err := cluster.FromEnvironment(os.LookupEnv, 0, nil)
		if err != nil {
			fmt.Println(err)
			return 8
		}
		job.Workers, job.Index, job.Host = c.WorkerNum(), c.WorkerIndex(), c.Workers()[c.WorkerIndex()].Host
		job.Timeout = 30 * time.Second
		m, err := rendezvous.Join(context.Background(), job)
		if err != nil {
			fmt.Println(err)
			return 7
		}
		fmt.Printf("worker %d of %d joined\n", m.Index(), len(m.Workers()))
		if slices.Contains(args, "fail") || slices.Contains(args, "give up") {
			if m.Index() == 1 {
				if args[0] == "give up" {
					m.Fail(errors.New("epl: the disk is full: make room"))
				}
				return 5
			}
			<-m.Done()
			fmt.Println("stops:", m.Err())
			return 6
		}
		answer := "yes"
		if slices.Contains(args, "disagree") {
			answer = fmt.Sprint("I am worker ", m.Index())
		}
		if err := m.Agree(context.Background(), "the end", answer); err != nil {
			fmt.Println(err)
			return 7
		}
		m.Leave()
		return 0
	},
}

// output collects what a launcher prints.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.more != nil {
		close(o.more)
		o.more = nil
	}
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// await waits until the output has n matches, and returns their first groups.
func (o *output) await(t *testing.T, pattern string, n int) (found []string) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		o.mu.Lock()
		text := o.text.String()
		if o.more == nil {
			o.more = make(chan struct{})
		}
		more := o.more
		o.mu.Unlock()
		if m := regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1); len(m) >= n {
			for _, groups := range m {
				found = append(found, groups[len(groups)-1])
			}
			return found
		}
		select {
		case <-more:
		case <-deadline:
			t.Fatalf("waited in vain for %d × %s in:\n%s", n, pattern, text)
		}
	}
}

// test runs a job of small programs. Their environment is this one's, without what would change the answer.
func test(t *testing.T, o Options) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs output
	o.Stdout, o.Stderr = &out, &errs
	status, err := Run(t.Context(), prepared(o))
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, &out, &errs)
	}
	return status, out.String(), errs.String()
}

// prepared fills in the environment and, for a command that is a small program, the test binary.
func prepared(o Options) Options {
	if o.Environ == nil {
		o.Environ = cleanEnviron()
	}
	if _, ok := workers[o.Command[0]]; ok {
		o.Command = append([]string{os.Args[0]}, o.Command...)
	}
	return o
}

func cleanEnviron(vars ...string) []string {
	return append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		for _, prefix := range []string{"EPL_", "SLURM_", "OMPI_", "PMI", "CUDA_", "GOMAXPROCS=", "RANK=", "WORLD_SIZE=", "LOCAL_", "MASTER_", "TORCHELASTIC_"} {
			if strings.HasPrefix(v, prefix) {
				return true
			}
		}
		return false
	}), vars...)
}

// sorted returns the lines in order, since those of different workers may come in any.
func sorted(text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// mustBeGone fails if one of the processes is still there after a moment.
func mustBeGone(t *testing.T, pids []string) {
	t.Helper()
	for _, pid := range pids {
		for deadline := time.Now().Add(20 * time.Second); alive(pid); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Errorf("process %s is still running", pid)
				break
			}
		}
	}
}

func alive(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func TestEachLineStandsBehindTheIndexOfItsWorker(t *testing.T) {
	t.Parallel()
	status, stdout, stderr := test(t, Options{Workers: 2, Command: []string{"say", "one\ntwo\n", "10%\r100%\n", "no end"}})
	if status != 0 || stderr != "" {
		t.Errorf("status %d, stderr %q", status, stderr)
	}
	if want := "[0] 100%\n[0] no end\n[0] one\n[0] two\n[1] 100%\n[1] no end\n[1] one\n[1] two"; sorted(stdout) != want {
		t.Errorf("got:\n%s", stdout)
	}
}

func TestAWorkerLearnsWhoItIsFromItsEnvironment(t *testing.T) {
	t.Parallel()
	names := []string{"variables", "EPL_NUM_WORKERS", "EPL_WORKER_INDEX", "EPL_DEVICES_PER_WORKER", "EPL_WORKER_HOSTS",
		"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "GOMAXPROCS", "CUDA_VISIBLE_DEVICES"}
	_, stdout, _ := test(t, Options{Workers: 2, DevicesPerWorker: 2, Command: names,
		Environ: cleanEnviron("CUDA_VISIBLE_DEVICES=3,5,6,7", "GOMAXPROCS=7", "EPL_WORKER_HOSTS=stale,values")})
	for _, want := range []string{"[1] EPL_NUM_WORKERS=2", "[1] EPL_WORKER_INDEX=1", "[1] EPL_DEVICES_PER_WORKER=2", "[1] EPL_WORKER_HOSTS=\n",
		"[1] RANK=1", "[1] WORLD_SIZE=2", "[1] LOCAL_RANK=1", "[1] MASTER_ADDR=127.0.0.1", "[1] GOMAXPROCS=7",
		"[0] CUDA_VISIBLE_DEVICES=3,5\n", "[1] CUDA_VISIBLE_DEVICES=6,7\n"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in:\n%s", want, stdout)
		}
	}
}

func TestDevicesOfTheEnvironmentAreThoseOfEachWorker(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{"2": "0,1", " 1 ": "0", "1,1": "0,1"} { // a list is the workers' business
		_, stdout, stderr := test(t, Options{Workers: 2, Command: []string{"variables", "EPL_DEVICES_PER_WORKER", "CUDA_VISIBLE_DEVICES"},
			Environ: cleanEnviron("CUDA_VISIBLE_DEVICES=0,1,2,3", "EPL_DEVICES_PER_WORKER="+value)})
		if !strings.Contains(stdout, "[0] EPL_DEVICES_PER_WORKER="+strings.TrimSpace(value)+"\n") || !strings.Contains(stdout, "[0] CUDA_VISIBLE_DEVICES="+want+"\n") || stderr != "" {
			t.Errorf("%q: got %s, %s", value, stdout, stderr)
		}
	}
}

func TestVariablesThatTheLauncherDoesNotUseAreSaid(t *testing.T) {
	t.Parallel()
	vars := []string{"EPL_NUM_WORKERS=4", "EPL_WORKER_INDEX=1", "EPL_RDZV=first://a:1"}
	_, stdout, stderr := test(t, Options{Command: []string{"variables", "EPL_NUM_WORKERS"}, Environ: cleanEnviron(vars...)})
	if !strings.HasPrefix(stderr, "epl-launch: EPL_NUM_WORKERS, EPL_WORKER_INDEX, EPL_RDZV in the environment: not used") || stdout != "[0] EPL_NUM_WORKERS=1\n" {
		t.Errorf("got %s, %s", stdout, stderr)
	}
	_, _, stderr = test(t, Options{Command: []string{"variables", "EPL_NUM_WORKERS"}, Environ: cleanEnviron(append(vars, "EPL_LAUNCH=x")...)})
	if stderr != "" {
		t.Errorf("in a worker: %s", stderr)
	}
}

func TestEveryJobHasATokenOfItsOwnThatNoCommandLineShows(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 2 {
		_, stdout, stderr := test(t, Options{Debug: true, Command: []string{"variables", "EPL_TOKEN"}})
		token := regexp.MustCompile(`EPL_TOKEN=([0-9a-f]{64})\n`).FindStringSubmatch(stdout)
		if token == nil || seen[token[1]] {
			t.Fatalf("the token: %s", stdout)
		}
		seen[token[1]] = true
		if strings.Contains(stderr, token[1]) || !strings.Contains(stderr, "EPL_TOKEN=(hidden)") {
			t.Errorf("--debug says:\n%s", stderr)
		}
	}
}

func TestTheJobEndsWithTheStatusOfTheWorkerThatFailedFirst(t *testing.T) {
	t.Parallel()
	logs := t.TempDir()
	for _, test := range []struct {
		name    string
		command []string
		status  int
		how     string
	}{
		{"a status", []string{"exit", "0", "3"}, 3, "exited with status 3"},
		{"a signal", []string{"exit", "0", "-9"}, 137, "was killed by signal 9 (killed); it had not joined the job yet"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var out, errs output
			o := prepared(Options{Workers: 3, Command: test.command, LogDir: logs, TaskLabel: test.name, Stdout: &out, Stderr: &errs})
			status, err := Run(t.Context(), o)
			if err != nil || status != test.status {
				t.Errorf("status %d, %v, want %d", status, err, test.status)
			}
			log := filepath.Join(logs, test.name, "worker-1.log")
			want := "epl-launch: the last lines of worker 1:\n"
			for i := 10; i < 30; i++ {
				want += fmt.Sprintf("[1] line %d of 1\n", i)
			}
			want += fmt.Sprintf("epl-launch: worker 1 on %s %s; its log is %s\n", hostName(), test.how, log)
			if got := errs.String(); !strings.HasSuffix(got, want) {
				t.Errorf("got:\n%s\nwant at its end:\n%s", got, want)
			}
			if text, err := os.ReadFile(log); err != nil || strings.Count(string(text), "\n") != 30 || strings.Contains(string(text), "[1]") {
				t.Errorf("the log, %v:\n%s", err, text)
			}
		})
	}
}

func TestWorkersMeetAtTheLauncher(t *testing.T) {
	t.Parallel()
	status, stdout, stderr := test(t, Options{Workers: 2, Command: []string{"join"}})
	if status != 0 || stderr != "" {
		t.Errorf("status %d, got:\n%s\n%s", status, stdout, stderr)
	}
	golden(t, "shown.txt", sorted(stdout)+"\n")
}

func TestAnInterruptEndsAllWorkersAndWhatTheyStarted(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		command []string
		signals []os.Signal
		status  int
	}{
		{"interrupted", []string{"sleep"}, []os.Signal{syscall.SIGINT}, 130},
		{"terminated", []string{"sleep"}, []os.Signal{syscall.SIGTERM}, 143},
		{"stubborn workers", []string{"sleep", "stubborn"}, []os.Signal{syscall.SIGINT}, 130},
		{"an impatient user", []string{"sleep", "stubborn"}, []os.Signal{syscall.SIGINT, syscall.SIGINT}, 130},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var out, errs output
			signals := make(chan os.Signal, 2)
			o := prepared(Options{Workers: 2, Command: test.command, Stdout: &out, Stderr: &errs, Signals: signals})
			done := make(chan int)
			go func() {
				status, _ := Run(context.Background(), o)
				done <- status
			}()
			pids := out.await(t, `pid (\d+)`, 4)
			for _, s := range test.signals {
				signals <- s
			}
			select {
			case status := <-done:
				if status != test.status {
					t.Errorf("status %d, want %d", status, test.status)
				}
			case <-time.After(time.Minute):
				t.Fatal("the launcher does not end")
			}
			for _, pid := range pids { // at once: nothing outlives the launcher
				if alive(pid) {
					t.Errorf("process %s outlived the launcher", pid)
				}
			}
		})
	}
}

func TestCancellingTheContextEndsTheJob(t *testing.T) {
	t.Parallel()
	var out, errs output
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan int)
	go func() {
		status, _ := Run(ctx, prepared(Options{Command: []string{"sleep"}, Stdout: &out, Stderr: &errs}))
		done <- status
	}()
	pids := out.await(t, `pid (\d+)`, 2)
	cancel()
	if status := <-done; status != 143 {
		t.Errorf("status %d", status)
	}
	mustBeGone(t, pids)
}

// launcher starts a launcher as a process of its own.
func launcher(t *testing.T, o Options) (*exec.Cmd, *output) {
	t.Helper()
	o = prepared(o)
	data, err := json.Marshal(jobOptions{o.Command, o.SSH, o.Workers, o.Port, o.Hosts})
	if err != nil {
		t.Fatal(err)
	}
	var out output
	cmd := exec.Command(os.Args[0], "launcher", string(data))
	cmd.Env = o.Environ
	read, write := io.Pipe()
	go io.Copy(&out, read)
	cmd.Stdout, cmd.Stderr = write, write
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	return cmd, &out
}

func TestAKilledLauncherLeavesNothing(t *testing.T) {
	t.Parallel()
	if !canSweep {
		t.Skip("only Linux tells which processes a launcher has left")
	}
	cmd, out := launcher(t, Options{Workers: 2, Command: []string{"sleep", "stubborn"}})
	pids := out.await(t, `pid (\d+)`, 4)
	cmd.Process.Kill()
	cmd.Wait()
	mustBeGone(t, pids)
}

func TestOtherProcessesAreLeftAlone(t *testing.T) {
	t.Parallel()
	bystander := exec.Command(os.Args[0], "sleep", "child")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	defer bystander.Process.Kill()
	if status, _, stderr := test(t, Options{Command: []string{"exit", "1"}}); status != 1 {
		t.Errorf("status %d: %s", status, stderr)
	}
	if !alive(strconv.Itoa(bystander.Process.Pid)) {
		t.Error("a process that the launcher did not start has ended")
	}
}

func TestAKilledLauncherLeavesNothingThatItHasBuilt(t *testing.T) {
	t.Parallel()
	if !canSweep {
		t.Skip("only Linux has a guard that removes it")
	}
	for name, test := range map[string]struct{ build, program string }{
		"while the program is built": {"echo pid $$ >&4; sleep 1000", ""},
		"while the program runs":     {`cp "$PROGRAM" "$3"`, "#!/bin/sh\necho pid $$\nsleep 1000\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// A go command that builds what it is told, and leaves something as one that is killed does.
			tools, temporary := t.TempDir(), t.TempDir()
			script := "#!/bin/sh\n" + `mkdir "$GOTMPDIR/go-build1" && exec 4>>"$PIDS" && ` + test.build + "\n"
			for file, text := range map[string]string{"go": script, "program": test.program, "pids": ""} {
				if err := os.WriteFile(filepath.Join(tools, file), []byte(text), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			pids := filepath.Join(tools, "pids")
			cmd, out := launcher(t, Options{Command: []string{"go", "run", "./x"}, Environ: cleanEnviron("PATH="+tools+":"+os.Getenv("PATH"),
				"TMPDIR="+temporary, "PIDS="+pids, "PROGRAM="+filepath.Join(tools, "program"))})
			var running []string
			if test.program != "" {
				running = out.await(t, `pid (\d+)`, 1)
			} else {
				running = []string{awaitFile(t, pids, `pid (\d+)\n`)}
			}
			if files, _ := os.ReadDir(temporary); len(files) != 1 {
				t.Errorf("built in %v", files)
			}
			cmd.Process.Kill()
			cmd.Wait()
			mustBeGone(t, running)
			for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
				if files, _ := os.ReadDir(temporary); len(files) == 0 {
					return
				} else if time.Now().After(deadline) {
					t.Fatalf("%v is left", files)
				}
			}
		})
	}
}

// awaitFile waits until a file has a match, and returns its first group.
func awaitFile(t *testing.T, path, pattern string) string {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		text, _ := os.ReadFile(path)
		if m := regexp.MustCompile(pattern).FindSubmatch(text); m != nil {
			return string(m[1])
		}
	}
	t.Fatalf("waited in vain for %s in %s", pattern, path)
	return ""
}

func TestAProcessThatOutlivesItsWorkerIsEnded(t *testing.T) {
	t.Parallel()
	script := os.Args[0] + ` sleep child stubborn & wait_for=$!; echo pid $wait_for`
	status, stdout, stderr := test(t, Options{Command: []string{"sh", "-c", script}})
	if status != 0 {
		t.Errorf("status %d, %s", status, stderr)
	}
	mustBeGone(t, regexp.MustCompile(`\d+$`).FindAllString(strings.TrimSpace(stdout), -1))
}

// In the middle of an exec a process shows no environment, so one look at it is not enough.
func TestAProcessThatKeepsReplacingItselfIsEnded(t *testing.T) {
	t.Parallel()
	if !canSweep {
		t.Skip("only Linux tells which processes a launcher has left")
	}
	script := filepath.Join(t.TempDir(), "again")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexec \"$0\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < 100 && !t.Failed(); i++ {
		mark := fmt.Sprintf("%s-%d-%d", t.Name(), os.Getpid(), i)
		cmd := exec.Command(script)
		cmd.Env = []string{envMark + "=" + mark}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		sweep(mark, 0)
		mustBeGone(t, []string{strconv.Itoa(cmd.Process.Pid)})
		cmd.Process.Kill()
		cmd.Wait()
	}
}

func TestAScriptThatIsNotExecutableIsRunByTheShell(t *testing.T) {
	t.Parallel()
	for _, mode := range []os.FileMode{0o644, 0o755} { // executable, but without #!
		script := filepath.Join(t.TempDir(), "run.sh")
		if err := os.WriteFile(script, []byte("echo script $1\nexit 4\n"), mode); err != nil {
			t.Fatal(err)
		}
		if status, stdout, stderr := test(t, Options{Command: []string{script, "here"}}); status != 4 || stdout != "[0] script here\n" {
			t.Errorf("%v: status %d, %q, %s", mode, status, stdout, stderr)
		}
	}
}

func TestGoRunIsBuiltOnce(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(program, []byte("package main\nimport \"os\"\nfunc main() { println(os.Args[1]); os.Exit(6) }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	status, _, stderr := test(t, Options{Workers: 2, Command: []string{"go", "run", program, "-x"}})
	if status != 6 || !strings.Contains(stderr, "[0] -x\n") || !strings.Contains(stderr, "[1] -x\n") {
		t.Errorf("status %d:\n%s", status, stderr)
	}
	if err := os.WriteFile(program, []byte("package main\nfunc main() { nonsense }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	status, err := Run(t.Context(), prepared(Options{Command: []string{"go", "run", program}, Stdout: io.Discard, Stderr: io.Discard}))
	if status != 2 || err == nil || !strings.Contains(err.Error(), "undefined: nonsense") {
		t.Errorf("status %d, %v", status, err)
	}
}

func TestBadInputIsRefusedBeforeAnythingIsStarted(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		options Options
		want    string
	}{
		{Options{}, "epl: there is no command to run"},
		{Options{Command: []string{"no-such-command"}}, `epl: the command "no-such-command" was not found, neither in PATH nor as a file in `},
		{Options{Command: []string{"./no/such"}}, `epl: the command "./no/such" was not found`},
		{Options{Command: []string{"say"}, Workers: -1}, "epl: --num_workers -1: expected a number of at least 1"},
		{Options{Command: []string{"say"}, DevicesPerWorker: -2}, "epl: --gpu_per_worker -2: expected"},
		{Options{Command: []string{"say"}, DevicesPerWorker: 100000}, "epl: --gpu_per_worker 100000: a worker has at most 1024 devices; use more workers"},
		{Options{Command: []string{"say"}, Workers: 100000}, "epl: 100000 workers on " + hostName() + ": a machine runs at most 1024"},
		{Options{Command: []string{"say"}, Environ: cleanEnviron("RANK=1")}, `epl: RANK="1" is set, but WORLD_SIZE is not`},
		{Options{Command: []string{"say"}, Port: 29871}, "epl: --port 29871 is where the first of several machines listens, but there are no others"},
		{Options{Command: []string{"say"}, Port: 70000}, "epl: --port 70000: expected"},
		{Options{Command: []string{"say"}, TaskLabel: "../up"}, `epl: --task_label "../up": expected a name`},
		{Options{Command: []string{"say"}, TLSCert: "a"}, "epl: --tls_cert, --tls_key and --tls_ca belong together"},
		{Options{Command: []string{"say"}, TLSCert: "a", TLSKey: "b", TLSCA: "c"}, "epl: cannot read the TLS certificate"},
		{Options{Command: []string{"say"}, Hosts: "a", MachineList: "b"}, "epl: --hosts and --machine_list both say"},
		{Options{Command: []string{"say"}, Hosts: "a,,b"}, `epl: --hosts "a,,b": expected names`},
		{Options{Command: []string{"say"}, Hosts: "-oProxyCommand=x"}, `epl: --hosts "-oProxyCommand=x": expected names`},
		{Options{Command: []string{"say"}, Hosts: "a:2,b", Workers: 2}, `epl: --hosts "a:2,b" has 2 machines, with 2 workers given by number; --num_workers 2 does not fit: use 3`},
		{Options{Command: []string{"say"}, MachineList: "a,b", MachineRank: 2}, "epl: --machine_rank 2: expected a number from 0 to 1"},
		{Options{Command: []string{"say"}, MachineRank: 1}, "epl: --machine_rank 1 needs --machine_list"},
		{Options{Command: []string{"say"}, MachineList: "a,b", Workers: 3}, "epl: --num_workers 3 does not divide into 2 machines; use 2 or 4"},
		{Options{Command: []string{"say"}, MachineList: "a,b", Workers: 2}, "epl: the launchers of several machines need the same EPL_TOKEN; make one with openssl rand -hex 32"},
		{Options{Command: []string{"say"}, Rendezvous: "http://x"}, `epl: --rdzv "http://x": expected tcp://HOST:PORT or etcd://`},
		{Options{Command: []string{"say"}, Rendezvous: "etcd://x:1/p"}, "epl: --num_machines 0: expected"},
		{Options{Command: []string{"say"}, Rendezvous: "etcd://x:1", NumMachines: 1, Environ: cleanEnviron("EPL_TOKEN=t")}, `epl: --rdzv "etcd://x:1": expected etcd://HOST:PORT/PREFIX`},
		{Options{Command: []string{"say"}, Workers: 3, Environ: cleanEnviron("PMI_RANK=0", "PMI_SIZE=2")}, "epl: --num_workers 3 contradicts MPI, which started 2 workers"},
	} {
		o := test.options
		if len(o.Command) > 0 {
			o = prepared(o)
		}
		var out, errs output
		o.Stdout, o.Stderr = &out, &errs
		status, err := Run(t.Context(), o)
		if status != 2 || err == nil || !strings.HasPrefix(err.Error(), test.want) || out.String() != "" {
			t.Errorf("%+v\nstatus %d, got  %v\nwant %s", test.options, status, err, test.want)
		}
	}
}

func TestAPlanIsGivenToAllWorkers(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "plan.json")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, stdout, _ := test(t, Options{Workers: 2, Plan: file, Command: []string{"variables", "EPL_PLAN_FILE"}, Environ: cleanEnviron("EPL_PLAN_FILE=another")})
	if want := "[0] EPL_PLAN_FILE=" + file + "\n[1] EPL_PLAN_FILE=" + file; sorted(stdout) != want {
		t.Errorf("got:\n%s", stdout)
	}
	_, err := Run(t.Context(), Options{Plan: file + ".none", Command: []string{"variables"}})
	if err == nil || !strings.Contains(err.Error(), "--plan "+file+".none") {
		t.Errorf("a plan that is not there: %v", err)
	}
}
