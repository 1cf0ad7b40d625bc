// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build mpi

package mpi

// This file has all calls of MPI. C wraps them because most of MPI's names are macros.

/*
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <unistd.h>

static int epl_init(int *provided, int *found) {
	MPI_Initialized(found);
	if (*found) return MPI_Query_thread(provided);
	return MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, provided);
}

// epl_duplicate makes a communicator of the whole world whose errors come back instead of ending the process.
static int epl_duplicate(MPI_Comm *out, int *rank, int *size) {
	int err = MPI_Comm_dup(MPI_COMM_WORLD, out);
	if (err == MPI_SUCCESS) err = MPI_Comm_set_errhandler(*out, MPI_ERRORS_RETURN);
	if (err == MPI_SUCCESS) err = MPI_Comm_rank(*out, rank);
	if (err == MPI_SUCCESS) err = MPI_Comm_size(*out, size);
	return err;
}

// epl_create makes a communicator of some ranks, in their order. It returns when all of them have called it.
static int epl_create(MPI_Comm world, int n, const int *ranks, MPI_Comm *out) {
	MPI_Group all, some;
	int err = MPI_Comm_group(world, &all);
	if (err != MPI_SUCCESS) return err;
	err = MPI_Group_incl(all, n, ranks, &some);
	if (err == MPI_SUCCESS) {
		err = MPI_Comm_create_group(world, some, 0, out);
		MPI_Group_free(&some);
	}
	MPI_Group_free(&all);
	if (err == MPI_SUCCESS) err = MPI_Comm_set_errhandler(*out, MPI_ERRORS_RETURN);
	return err;
}

// epl_test looks some times whether a request is done, and lets others have the processor in between. Where workers are more
// than processors it also sleeps a little: yielding is not enough for those of MPICH to get their turn.
static int epl_test(MPI_Request *request, int looks, int crowded, int *done) {
	for (*done = 0; looks > 0; looks--) {
		int err = MPI_Test(request, done, MPI_STATUS_IGNORE);
		if (err != MPI_SUCCESS || *done) return err;
		if (crowded && looks % 4 == 1) usleep(1);
		else sched_yield();
	}
	return MPI_SUCCESS;
}

// epl_bits is the type of elements that are only moved, by their size.
static MPI_Datatype epl_bits(int size) {
	switch (size) {
	case 1: return MPI_UINT8_T;
	case 2: return MPI_UINT16_T;
	case 4: return MPI_UINT32_T;
	case 8: return MPI_UINT64_T;
	}
	return MPI_C_DOUBLE_COMPLEX;
}

// epl_number is the type of elements that are added: 'i', 'f' or 'c' for integers, floats and complex numbers.
static MPI_Datatype epl_number(char kind, int size) {
	switch (kind) {
	case 'f': return size == 4 ? MPI_FLOAT : MPI_DOUBLE;
	case 'c': return size == 8 ? MPI_C_FLOAT_COMPLEX : MPI_C_DOUBLE_COMPLEX;
	}
	return epl_bits(size);
}

// Pointers come as numbers: they point to memory that is pinned, and the objects it is part of are nobody's business.

static int epl_isend(uintptr_t p, int n, int size, int to, int tag, MPI_Comm c, MPI_Request *r) {
	return MPI_Isend((void *)p, n, epl_bits(size), to, tag, c, r);
}
static int epl_irecv(uintptr_t p, int n, int size, int from, int tag, MPI_Comm c, MPI_Request *r) {
	return MPI_Irecv((void *)p, n, epl_bits(size), from < 0 ? MPI_ANY_SOURCE : from, tag, c, r);
}
static int epl_cancel(MPI_Request *r) {
	int err = MPI_Cancel(r);
	return err == MPI_SUCCESS ? MPI_Wait(r, MPI_STATUS_IGNORE) : err;
}
static int epl_ialltoall(uintptr_t in, uintptr_t out, int n, MPI_Comm c, MPI_Request *r) {
	return MPI_Ialltoall((void *)in, n, MPI_BYTE, (void *)out, n, MPI_BYTE, c, r);
}
static int epl_ialltoallv(uintptr_t in, const int *inc, const int *ind, uintptr_t out, const int *outc, const int *outd, int size, MPI_Comm c, MPI_Request *r) {
	return MPI_Ialltoallv((void *)in, inc, ind, epl_bits(size), (void *)out, outc, outd, epl_bits(size), c, r);
}
// epl_iallgatherv is in place: this process's part is in the buffer.
static int epl_iallgatherv(uintptr_t p, const int *n, const int *d, int size, MPI_Comm c, MPI_Request *r) {
	return MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, (void *)p, n, d, epl_bits(size), c, r);
}
static int epl_ibcast(uintptr_t p, int n, int size, int root, MPI_Comm c, MPI_Request *r) {
	return MPI_Ibcast((void *)p, n, epl_bits(size), root, c, r);
}
// epl_iallreduce adds in place.
static int epl_iallreduce(uintptr_t p, int n, char kind, int size, MPI_Comm c, MPI_Request *r) {
	return MPI_Iallreduce(MPI_IN_PLACE, (void *)p, n, epl_number(kind, size), MPI_SUM, c, r);
}
static int epl_ireduce_scatter(uintptr_t in, uintptr_t out, const int *n, char kind, int size, MPI_Comm c, MPI_Request *r) {
	return MPI_Ireduce_scatter((void *)in, (void *)out, n, epl_number(kind, size), MPI_SUM, c, r);
}
*/
import "C"

import (
	"strings"
	"unsafe"

	"github.com/gomlx/compute/dtypes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm/internal/transport"
)

type (
	mpiComm    = C.MPI_Comm
	mpiRequest = C.MPI_Request
	mpiInt     = C.int
)

// mpiError turns MPI's code into an error.
func mpiError(code C.int) error {
	if code == C.MPI_SUCCESS {
		return nil
	}
	text := make([]byte, C.MPI_MAX_ERROR_STRING)
	var n C.int
	C.MPI_Error_string(code, (*C.char)(unsafe.Pointer(&text[0])), &n)
	return errors.Errorf("MPI says %q", text[:n])
}

// Version names the MPI that this program was built with.
func Version() string {
	text := make([]byte, C.MPI_MAX_LIBRARY_VERSION_STRING)
	var n C.int
	C.MPI_Get_library_version((*C.char)(unsafe.Pointer(&text[0])), &n)
	line, _, _ := strings.Cut(string(text[:n]), "\n")
	name, _, _ := strings.Cut(line, ",")
	return strings.Join(strings.Fields(name), " ")
}

// mpiInit starts MPI for the calling thread, unless somebody has.
func mpiInit() (found bool, err error) {
	var provided, already C.int
	if err := mpiError(C.epl_init(&provided, &already)); err != nil {
		return false, errors.WithMessage(err, "epl: MPI does not start")
	}
	need, name := C.int(C.MPI_THREAD_FUNNELED), "MPI_THREAD_FUNNELED"
	if already != 0 { // on another thread
		need, name = C.MPI_THREAD_SERIALIZED, "MPI_THREAD_SERIALIZED"
	}
	if provided < need {
		return false, errors.Errorf("epl: this MPI gives thread level %d, and EPL needs at least %d (%s); "+
			"use an MPI that has it, or set communication.backend to auto", provided, need, name)
	}
	return already != 0, nil
}

func mpiDuplicate() (c mpiComm, rank, size int, err error) {
	var r, n C.int
	err = mpiError(C.epl_duplicate(&c, &r, &n))
	return c, int(r), int(n), err
}

func mpiCreate(world mpiComm, ranks []mpiInt) (c mpiComm, err error) {
	err = mpiError(C.epl_create(world, C.int(len(ranks)), &ranks[0], &c))
	return c, err
}

func mpiFinalize() { C.MPI_Finalize() }

// mpiTest looks some times whether a request is done. It is then forgotten.
func mpiTest(request *mpiRequest, looks int, crowded bool) (bool, error) {
	var done, sleeps C.int
	if crowded {
		sleeps = 1
	}
	r := *request // what is around it is not MPI's business
	err := mpiError(C.epl_test(&r, C.int(looks), sleeps, &done))
	*request = r
	return done != 0, err
}

// The calls below begin something. Counts and offsets are in elements; all memory is lent until it is done.

// mpiAddress is where a buffer is. An empty one is nowhere: MPI would compare its address with others.
func mpiAddress(b transport.Buffer) C.uintptr_t {
	if b.Len == 0 {
		return 0
	}
	return C.uintptr_t(uintptr(b.Ptr))
}

func mpiSend(b transport.Buffer, to, tag int, c mpiComm) (r mpiRequest, err error) {
	err = mpiError(C.epl_isend(mpiAddress(b), C.int(b.Len), C.int(b.Size), C.int(to), C.int(tag), c, &r))
	return r, err
}

// mpiReceive takes from anybody if from is negative.
func mpiReceive(b transport.Buffer, from, tag int, c mpiComm) (r mpiRequest, err error) {
	err = mpiError(C.epl_irecv(mpiAddress(b), C.int(b.Len), C.int(b.Size), C.int(from), C.int(tag), c, &r))
	return r, err
}

// mpiCancel takes a receive back.
func mpiCancel(r mpiRequest) error { return mpiError(C.epl_cancel(&r)) }

// mpiSwap gives n bytes of in to each, and puts those of each into out.
func mpiSwap(in, out transport.Buffer, n int, c mpiComm) (r mpiRequest, err error) {
	err = mpiError(C.epl_ialltoall(mpiAddress(in), mpiAddress(out), C.int(n), c, &r))
	return r, err
}

func mpiAllToAll(in, out transport.Buffer, give, take mpiParts, c mpiComm) (r mpiRequest, err error) {
	err = mpiError(C.epl_ialltoallv(mpiAddress(in), &give.counts[0], &give.offsets[0],
		mpiAddress(out), &take.counts[0], &take.offsets[0], C.int(in.Size), c, &r))
	return r, err
}

func mpiAllGather(b transport.Buffer, parts mpiParts, c mpiComm) (r mpiRequest, err error) {
	err = mpiError(C.epl_iallgatherv(mpiAddress(b), &parts.counts[0], &parts.offsets[0], C.int(b.Size), c, &r))
	return r, err
}

func mpiBroadcast(b transport.Buffer, root int, c mpiComm) (r mpiRequest, err error) {
	err = mpiError(C.epl_ibcast(mpiAddress(b), C.int(b.Len), C.int(b.Size), C.int(root), c, &r))
	return r, err
}

func mpiAllReduce(b transport.Buffer, kind byte, c mpiComm) (r mpiRequest, err error) {
	err = mpiError(C.epl_iallreduce(mpiAddress(b), C.int(b.Len), C.char(kind), C.int(b.Size), c, &r))
	return r, err
}

func mpiReduceScatter(in, out transport.Buffer, parts mpiParts, kind byte, c mpiComm) (r mpiRequest, err error) {
	err = mpiError(C.epl_ireduce_scatter(mpiAddress(in), mpiAddress(out), &parts.counts[0], C.char(kind), C.int(in.Size), c, &r))
	return r, err
}

// mpiParts divides a buffer among the members of a team.
type mpiParts struct{ counts, offsets []mpiInt }

// mpiAdds tells whether MPI reduces such elements as we mean it, and what kind of number it must take them for. It does so
// for most sums. But it has no floats of 16 bits, does not say what the maximum of a number and a NaN is, and Open MPI does not
// let integers of 8 and 16 bits wrap around.
func mpiAdds(dtype dtypes.DType, r transport.Reduction) (kind byte, ok bool) {
	if r != transport.Sum {
		return 0, false
	}
	switch dtype {
	case dtypes.Float32, dtypes.Float64:
		return 'f', true
	case dtypes.Complex64, dtypes.Complex128:
		return 'c', true
	case dtypes.Int32, dtypes.Int64, dtypes.Uint32, dtypes.Uint64:
		return 'i', true
	}
	return 0, false
}
