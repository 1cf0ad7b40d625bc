package epl

import (
	"os"
	"strings"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/internal/engine"
)

// Environment variables by which "epl plan" asks for a plan.
const (
	// EnvPlan names a file for the plan of the first training program, which then does not run: the process ends, with status 1.
	// A file that is there stays as it is. Planning takes one inner backend and no other worker, however many devices the
	// cluster has.
	EnvPlan = "EPL_PLAN"
	// EnvPlanSet has settings "key=value", one a line, which win over those of the code.
	EnvPlanSet = "EPL_PLAN_SET"
)

// planned returns what a plan is to be made for: the settings of EPL_PLAN_SET, and the devices of the environment, which
// need not exist, in place of those that the code asks for.
func planned(cfg *Config, o *options) (*Config, error) {
	if strings.TrimSpace(os.Getenv(cluster.EnvDevicesPerWorker)) != "" {
		o.localDevices = 0
	}
	settings := strings.Split(os.Getenv(EnvPlanSet), "\n")
	if settings[0] == "" {
		return cfg, nil
	}
	return engine.With(cfg, settings)
}
