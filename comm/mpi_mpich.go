//go:build mpi && mpich

package comm

// For machines that have both, and Open MPI is the one that "mpi" means.

// #cgo pkg-config: mpich
import "C"
