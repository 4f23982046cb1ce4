/* Plays a module that is linked with MPI and its Fortran library, as mpi4py and f2py make them. */
#include "role.h"

#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kCount = 20000 };

int mpi_fortran_in_place_; /* Fortran's common block */

void mpi_init_(MPI_Fint* error);
void mpi_finalize_(MPI_Fint* error);
void mpi_allreduce_(void* send, void* receive, MPI_Fint* count, MPI_Fint* type, MPI_Fint* op, MPI_Fint* comm,
                    MPI_Fint* error);

/* Modules that are built once for several MPIs refer to these functions like this. */
extern int MPI_Allreduce_c(const void* send, void* receive, MPI_Count count, MPI_Datatype type, MPI_Op op,
                           MPI_Comm comm) __attribute__((weak));
extern int MPI_Reduce_scatter_c(const void* send, void* receive, const MPI_Count counts[], MPI_Datatype type, MPI_Op op,
                                MPI_Comm comm) __attribute__((weak));

static int rank, size, wrong, different;
static float *mine, *sum;

static void fill(float* values) {
  for (int i = 0; i < kCount; ++i) {
    values[i] = sinf((float)i) * (float)(rank + 1);
  }
}

/* Checks `count` elements from `first` on, within the error of int8. */
static void check(const char* what, const float* values, int first, int count) {
  const float all = (float)(size * (size + 1) / 2);
  for (int i = 0; i < count; ++i) {
    const float right = sinf((float)(first + i)) * all;
    different += values[i] != right;
    if (fabsf(values[i] - right) > 2.0F * all / 254.0F * 1.1F) {
      printf("%s: element %d is %g and not %g\n", what, first + i, values[i], right);
      ++wrong;
      return;
    }
  }
}

static void as_fortran_does(void) {
  MPI_Fint count = kCount, type = MPI_Type_c2f(MPI_FLOAT), op = MPI_Op_c2f(MPI_SUM), error = 0;
  MPI_Fint comm = MPI_Comm_c2f(MPI_COMM_WORLD);
  fill(mine);
  mpi_allreduce_(mine, sum, &count, &type, &op, &comm, &error);
  check("Fortran", sum, 0, kCount);
  fill(sum);
  mpi_allreduce_(&mpi_fortran_in_place_, sum, &count, &type, &op, &comm, &error);
  check("Fortran in place", sum, 0, kCount);
  wrong += error != MPI_SUCCESS;
}

static void from_c(void) {
  fill(mine);
  MPI_Allreduce(mine, sum, kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  check("C", sum, 0, kCount);
  fill(sum);
  MPI_Allreduce(MPI_IN_PLACE, sum, kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  check("C in place", sum, 0, kCount);
}

static void with_large_counts(void) {
  if (MPI_Allreduce_c != NULL) {
    fill(mine);
    MPI_Allreduce_c(mine, sum, kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    check("large count", sum, 0, kCount);
    fill(sum);
    MPI_Allreduce_c(MPI_IN_PLACE, sum, kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    check("large count in place", sum, 0, kCount);
  }
  if (MPI_Reduce_scatter_c != NULL) {
    MPI_Count* counts = malloc((size_t)size * sizeof(MPI_Count));
    for (int i = 0; i < size; ++i) {
      counts[i] = kCount / size;
    }
    fill(mine);
    MPI_Reduce_scatter_c(mine, sum, counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    check("large counts", sum, kCount / size * rank, kCount / size);
    free(counts);
  }
}

/* Makes sums once more, and ends MPI when nothing else is left of the program. */
static void at_exit(void) {
  MPI_Fint error = 0;
  as_fortran_does();
  from_c();
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("%s, different %s\n", wrong == 0 ? "role ok" : "role failed", different > 0 ? "yes" : "no");
  }
  free(mine);
  free(sum);
  fflush(stdout);
  mpi_finalize_(&error);
  if (wrong != 0) {
    _Exit(1);
  }
}

int role_work(void) {
  MPI_Fint error = 0;
  atexit(at_exit); /* registered first, so that it runs after all other exit handlers */
  mpi_init_(&error);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  mine = malloc(kCount * sizeof(float));
  sum = malloc(kCount * sizeof(float));
  as_fortran_does();
  from_c();
  with_large_counts();
  return 0;
}
