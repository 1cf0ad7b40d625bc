package launch

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
)

// canSweep says that processes can be found by their mark.
const canSweep = true

// withParent makes the process end with the thread that starts it.
func withParent(attr *syscall.SysProcAttr) *syscall.SysProcAttr {
	attr.Pdeathsig = syscall.SIGKILL
	return attr
}

// marked returns the processes whose environment has the mark.
func marked(mark string) (pids []int) {
	want := []byte(envMark + "=" + mark + "\x00")
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		environ, err := os.ReadFile(file)
		if err != nil || !bytes.HasPrefix(environ, want) && !bytes.Contains(environ, append([]byte{0}, want...)) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// ownThread runs the function on a thread that lives until the channel is closed: a process that is to end with its
// parent ends, in truth, with the thread that started it.
func ownThread(until <-chan struct{}, f func()) {
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		f()
		close(done)
		<-until
	}()
	<-done
}
