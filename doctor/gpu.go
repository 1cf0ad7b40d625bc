// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/easyparallel/epl/internal/words"
	"github.com/easyparallel/epl/pjrt/find"
)

// driverFor is the first driver that runs the programs of a version of CUDA.
var driverFor = map[int]int{12: 525, 13: 580}

// gpus is how many NVIDIA GPUs there are.
func (s *System) gpus() int {
	found, _ := filepath.Glob(filepath.Join(s.Root, "dev/nvidia[0-9]*"))
	return len(found)
}

var driverVersion = regexp.MustCompile(`\b(\d{3,})\.\d+(\.\d+)?\b`)

// driver is the version of NVIDIA's driver, and its first number; 0: it does not say.
func (s *System) driver() (text string, major int) {
	text = driverVersion.FindString(s.read("proc/driver/nvidia/version"))
	first, _, _ := strings.Cut(text, ".")
	major, _ = strconv.Atoi(first)
	return text, major
}

func (s *System) gpu() Finding {
	n := s.gpus()
	if n == 0 {
		return ok("There is no NVIDIA GPU here: programs run on CPUs.")
	}
	version, major := s.driver()
	if major == 0 {
		return problem("sudo modprobe nvidia", "There is %s, but NVIDIA's driver is not loaded, or not seen in this container.", words.Count(n, "GPU"))
	}
	if found, _ := filepath.Glob(filepath.Join(s.Root, "dev/nvidia-uvm")); len(found) == 0 {
		return problem("sudo nvidia-modprobe -u -c=0", "There is no /dev/nvidia-uvm, without which CUDA does not start.")
	}
	return ok("%s with driver %s.", words.Count(n, "GPU"), version)
}

var cudaVersion = regexp.MustCompile(`cuda(\d+)`)

func (s *System) plugin() Finding {
	python, _ := s.Path("python3")
	path, err := find.System{Root: s.Root, Home: s.Home, Python: python, Env: s.env}.Plugin("cuda")
	gpus := s.gpus() > 0
	version, driver := s.driver()
	install := `pip install "jax[cuda13]"`
	if driver > 0 && driver < driverFor[13] {
		install = `pip install "jax[cuda12]"`
	}
	switch {
	case err != nil && !gpus:
		return ok("There is no XLA plugin for CUDA, and no GPU that needs one.")
	case err != nil:
		return problem(install, "There is no XLA plugin for CUDA, so programs cannot use the GPUs; docs/gpu.md says where it is looked for.")
	}
	if m := cudaVersion.FindStringSubmatch(path); gpus && driver > 0 && m != nil {
		cuda, _ := strconv.Atoi(m[1])
		if least := driverFor[cuda]; driver < least {
			return problem(install, "%s is for CUDA %d, which needs driver %d or later; here it is %s.", path, cuda, least, version)
		}
	}
	return ok("%s.", path)
}
