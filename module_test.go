package epl_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The steps of the README make a program in a module of its own: nothing that it needs is internal.
func TestAModuleOfItsOwnBuildsAndRunsOnEPL(t *testing.T) {
	if testing.Short() {
		t.Skip("it links a program")
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"go.sum": string(sums), "main.go": ownProgram} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range []string{
		"go mod init example.com/mine",
		"go mod edit -require=github.com/easyparallel/epl@v0.0.0 -replace=github.com/easyparallel/epl=" + here, // in place of go get
		"go run .",
	} {
		cmd := exec.Command("go", strings.Fields(command)[1:]...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off") // what this module needs is there
		out, err := cmd.CombinedOutput()
		if err != nil || command == "go run ." && !strings.Contains(string(out), "2 devices") {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
}

const ownProgram = `package main

import (
	"fmt"
	"log"

	. "github.com/gomlx/gomlx/core/graph"

	"github.com/easyparallel/epl"
)

func main() {
	env, err := epl.Init(nil, epl.WithLocalDevices(2))
	if err != nil {
		log.Fatal(err)
	}
	defer env.Close()
	out, err := MustNewExec(env.Backend(), func(x *Node) *Node { return Sqrt(x) }).Call(float32(4))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(out[0], env.Cluster().TotalDevices(), "devices")
}
`
