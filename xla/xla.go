// Package xla lets programs run on GPUs: import it for its side effect, and choose the backend "xla:cuda" by epl.WithInner or GOMLX_BACKEND.
//
//	import _ "github.com/easyparallel/epl/xla"
//
//	env, err := epl.Init(nil, epl.WithInner("xla:cuda"))
//
// It needs no cgo, but a PJRT plugin of XLA on the machine: see docs/gpu.md. A program that imports it is linked with the C library, to load the
// plugin; one that does not stays static. Package exec/xla does the work.
package xla

import (
	"log"
	"os"
	"path/filepath"

	"github.com/gomlx/compute"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/exec/xla"
)

func init() { exec.Register("xla", open) }

// EnvCache is a folder for programs that XLA has compiled, so that they start at once the next time; "off": they are not kept. The
// default is epl/xla in the user's cache folder.
const EnvCache = "EPL_XLA_CACHE"

// EnvCUDNN says "off" to write attention out, which otherwise cuDNN computes in half precision.
const EnvCUDNN = "EPL_XLA_CUDNN"

// cacheBytes is how large it becomes.
const cacheBytes = 8 << 30

// open makes devices of GPUs. options are those of the backend's name.
func open(options string, needed int) (devices []compute.Backend, err error) {
	plugin, o, err := xla.Parse(options)
	if err != nil {
		return nil, err
	}
	o.Log, o.NoCUDNN = log.Printf, os.Getenv(EnvCUDNN) == "off"
	if folder := os.Getenv(EnvCache); folder != "off" {
		if folder == "" {
			cache, err := os.UserCacheDir()
			if err != nil {
				return nil, errors.Errorf("no folder for compiled programs: %v; set %s to one, or to \"off\"", err, EnvCache)
			}
			folder = filepath.Join(cache, "epl", "xla")
		}
		if o.Cache, err = xla.NewCache(folder, cacheBytes); err != nil {
			return nil, errors.WithMessagef(err, "%s", EnvCache)
		}
	}
	all, err := xla.Open(plugin, o)
	if err != nil {
		return nil, err
	}
	if len(all) < needed {
		for _, d := range all {
			d.Finalize()
		}
		return nil, errors.Errorf("this worker is to have %d devices, and there are %d GPUs: start fewer, or another worker on another machine", needed, len(all))
	}
	for i, d := range all {
		if i < needed {
			devices = append(devices, d)
		} else {
			d.Finalize()
		}
	}
	return devices, nil
}
