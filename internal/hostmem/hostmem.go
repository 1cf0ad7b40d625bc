// Package hostmem is memory of a machine that a launcher holds for its workers: it outlives them, and is gone with the launcher, however that ends.
//
// A launcher makes a [Pool] of files that are nowhere but in memory, and hands it to its workers in a variable of their environment. Workers open it, and keep in it what
// the workers that are started after them may need.
package hostmem

import (
	"strings"

	"github.com/pkg/errors"
)

// Env is the variable that tells a worker of the pool of its launcher.
const Env = "EPL_COPIES"

// Name is what tells a pool from those of other launchers, and where its files are.
type Name struct {
	ID    string
	Files []string
}

// String is how a pool is written in [Env].
func (n Name) String() string { return strings.Join(append([]string{n.ID}, n.Files...), ",") }

// Parse reads what String wrote.
func Parse(text string) (n Name, err error) {
	parts := strings.Split(text, ",")
	if len(parts) < 2 || parts[0] == "" {
		return n, errors.Errorf("epl: %s=%q is not what epl-launch writes; leave it unset", Env, text)
	}
	return Name{parts[0], parts[1:]}, nil
}
