//go:build mpi && !mpich

package mpi

// What "mpi" means is Debian's choice, see update-alternatives --config mpi: Open MPI, or MPICH if only that is installed.

// #cgo pkg-config: mpi
import "C"
