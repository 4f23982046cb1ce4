/* Preloaded before the drop-in, this library counts the calls that the drop-in makes for itself by the PMPI_ names. It
 * does not see the job's calls: the job uses the MPI_ names, and so does the drop-in when it passes them on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stddef.h>

static int sent, made;

int own_calls_sent(void) { return sent; }
int own_calls_made(void) { return made; }

#define COUNTED(counter, name, parameters, arguments)            \
  int PMPI_##name parameters {                                   \
    static int(*next) parameters;                                \
    if (next == NULL)                                            \
      next = (int(*) parameters)dlsym(RTLD_NEXT, "PMPI_" #name); \
    __atomic_add_fetch(&counter, 1, __ATOMIC_RELAXED);           \
    return next arguments;                                       \
  }

/* These functions communicate with other ranks. */
COUNTED(sent, Barrier, (MPI_Comm c), (c))
COUNTED(sent, Bcast, (void* b, int n, MPI_Datatype t, int r, MPI_Comm c), (b, n, t, r, c))
COUNTED(sent, Ibcast, (void* b, int n, MPI_Datatype t, int r, MPI_Comm c, MPI_Request* q), (b, n, t, r, c, q))
COUNTED(sent, Allgather, (const void* b, int n, MPI_Datatype t, void* d, int m, MPI_Datatype u, MPI_Comm c),
        (b, n, t, d, m, u, c))
COUNTED(sent, Iallgather,
        (const void* b, int n, MPI_Datatype t, void* d, int m, MPI_Datatype u, MPI_Comm c, MPI_Request* q),
        (b, n, t, d, m, u, c, q))
COUNTED(sent, Igather,
        (const void* b, int n, MPI_Datatype t, void* d, int m, MPI_Datatype u, int r, MPI_Comm c, MPI_Request* q),
        (b, n, t, d, m, u, r, c, q))
COUNTED(sent, Iallreduce, (const void* b, void* d, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c, MPI_Request* q),
        (b, d, n, t, o, c, q))
COUNTED(sent, Isend, (const void* b, int n, MPI_Datatype t, int p, int g, MPI_Comm c, MPI_Request* q),
        (b, n, t, p, g, c, q))
COUNTED(sent, Irecv, (void* b, int n, MPI_Datatype t, int p, int g, MPI_Comm c, MPI_Request* q), (b, n, t, p, g, c, q))
COUNTED(sent, Improbe, (int p, int g, MPI_Comm c, int* f, MPI_Message* m, MPI_Status* s), (p, g, c, f, m, s))

/* These functions make communicators. */
COUNTED(made, Comm_dup, (MPI_Comm c, MPI_Comm* d), (c, d))
COUNTED(made, Comm_idup, (MPI_Comm c, MPI_Comm* d, MPI_Request* q), (c, d, q))
COUNTED(made, Comm_split, (MPI_Comm c, int k, int o, MPI_Comm* d), (c, k, o, d))
COUNTED(made, Comm_split_type, (MPI_Comm c, int k, int o, MPI_Info i, MPI_Comm* d), (c, k, o, i, d))
COUNTED(made, Comm_create, (MPI_Comm c, MPI_Group g, MPI_Comm* d), (c, g, d))
COUNTED(made, Comm_create_group, (MPI_Comm c, MPI_Group g, int t, MPI_Comm* d), (c, g, t, d))
