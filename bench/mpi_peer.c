// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build ignore

// A process of the benchmark's fleet that communicates by MPI: see comm_fleet.go for the orders it gets.
#include <arpa/inet.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int orders(void) {
	char *address = strdup(getenv("EPL_BENCH_FLEET"));
	char *colon = strrchr(address, ':');
	*colon = 0;
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(colon + 1))};
	inet_pton(AF_INET, address, &to.sin_addr);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
		perror("mpi_peer: connect");
		exit(1);
	}
	return fd;
}

static double processor(void) {
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec + 1e-9 * t.tv_nsec;
}

int main(int argc, char **argv) {
	MPI_Comm world = MPI_COMM_WORLD;
	int rank, size, bytes, repeats, have = 0;
	float *a = NULL, *b = NULL;
	char op[32];
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(world, &rank);
	MPI_Comm_size(world, &size);
	int fd = orders();
	FILE *in = fdopen(fd, "r"), *out = fdopen(dup(fd), "w");
	fprintf(out, "%d\n", rank);
	fflush(out);
	while (fscanf(in, "%31s %d %d", op, &bytes, &repeats) == 3) {
		int n = bytes / 4, part = n / size;
		if (bytes != have) {
			free(a);
			free(b);
			a = malloc(bytes);
			b = malloc(bytes);
			for (int i = 0; i < n; i++) // pages that nobody wrote are all the same one, which is always in the cache
				a[i] = b[i] = 1;
			have = bytes;
		}
		for (double start = MPI_Wtime(); MPI_Wtime() - start < 0.01;) // see comm_worker.go
			;
		for (int i = 0; i < repeats; i++) {
			MPI_Barrier(world);
			double t = MPI_Wtime();
			if (!strcmp(op, "all-reduce"))
				MPI_Allreduce(a, b, n, MPI_FLOAT, MPI_SUM, world);
			else if (!strcmp(op, "reduce-scatter"))
				MPI_Reduce_scatter_block(a, b, part, MPI_FLOAT, MPI_SUM, world);
			else if (!strcmp(op, "all-gather"))
				MPI_Allgather(a, part, MPI_FLOAT, b, part, MPI_FLOAT, world);
			else if (!strcmp(op, "all-to-all"))
				MPI_Alltoall(a, part, MPI_FLOAT, b, part, MPI_FLOAT, world);
			else if (!strcmp(op, "broadcast"))
				MPI_Bcast(a, n, MPI_FLOAT, 0, world);
			else if (!strcmp(op, "uneven-step")) { // see comm_worker.go
				for (double start = processor(); processor() - start < 0.001 * (1 + rank % 2);)
					;
				MPI_Allreduce(a, b, n, MPI_FLOAT, MPI_SUM, world);
			} else if (rank == 0) { // there and back
				MPI_Send(a, n, MPI_FLOAT, 1, 0, world);
				MPI_Recv(b, n, MPI_FLOAT, 1, 0, world, MPI_STATUS_IGNORE);
			} else if (rank == 1) {
				MPI_Recv(b, n, MPI_FLOAT, 0, 0, world, MPI_STATUS_IGNORE);
				MPI_Send(a, n, MPI_FLOAT, 0, 0, world);
			}
			t = MPI_Wtime() - t;
			if (!strcmp(op, "send-recv"))
				t /= 2;
			fprintf(out, "%.9f ", t);
		}
		fprintf(out, "\n");
		fflush(out);
	}
	MPI_Finalize();
	return 0;
}
