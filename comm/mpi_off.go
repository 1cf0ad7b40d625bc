//go:build !mpi

package comm

// hasMPI tells whether this program was built with MPI.
const hasMPI = false

func newMPIEngine(*team) engine { panic("comm: no MPI") } // New has refused

func (w *World) joinMPI() error { panic("comm: no MPI") }

func (w *World) leaveMPI() {}
