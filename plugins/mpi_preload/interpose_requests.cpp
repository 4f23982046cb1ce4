// The functions that return a request; interpose.cpp has the blocking ones.
#include "plugins/mpi_preload/job_functions.hpp"

namespace gradwire::mpi_preload {
namespace {

#if MPI_VERSION >= 4
using choice::Function;

template <typename Count>
void count_persistent(Function function, const Count counts[], MPI_Datatype type, MPI_Comm comm) noexcept {
  if (counts != nullptr) {
    mpi_preload::count_persistent(function, sum_of(counts, size_of(comm)), type, comm);
  }
}
#endif

}  // namespace
}  // namespace gradwire::mpi_preload

using namespace gradwire::mpi_preload;  // NOLINT(google-build-using-namespace): only calls of it follow

GRADWIRE_EXPORT int MPI_Iallreduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op,
                                   MPI_Comm comm, MPI_Request* request) {
  return all_reduce(Requesting{request}, c_buffers(send, receive), count, type, op, comm,
                    [=] { return GRADWIRE_NEXT(MPI_Iallreduce)(send, receive, count, type, op, comm, request); });
}

GRADWIRE_EXPORT int MPI_Ireduce_scatter(const void* send, void* receive, const int counts[], MPI_Datatype type,
                                        MPI_Op op, MPI_Comm comm, MPI_Request* request) {
  return reduce_scatter(Requesting{request}, c_buffers(send, receive), counts, type, op, comm, [=] {
    return GRADWIRE_NEXT(MPI_Ireduce_scatter)(send, receive, counts, type, op, comm, request);
  });
}

GRADWIRE_EXPORT int MPI_Ireduce_scatter_block(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op,
                                              MPI_Comm comm, MPI_Request* request) {
  return reduce_scatter_block(Requesting{request}, c_buffers(send, receive), count, type, op, comm, [=] {
    return GRADWIRE_NEXT(MPI_Ireduce_scatter_block)(send, receive, count, type, op, comm, request);
  });
}

extern "C" {
GRADWIRE_ALSO(MPI_Iallreduce);
GRADWIRE_ALSO(MPI_Ireduce_scatter);
GRADWIRE_ALSO(MPI_Ireduce_scatter_block);
}

#if MPI_VERSION >= 4  // counts beyond 2^31
using gradwire::choice::Function;

GRADWIRE_EXPORT int MPI_Iallreduce_c(const void* send, void* receive, MPI_Count count, MPI_Datatype type, MPI_Op op,
                                     MPI_Comm comm, MPI_Request* request) {
  return all_reduce(Requesting{request}, c_buffers(send, receive), count, type, op, comm,
                    [=] { return GRADWIRE_NEXT(MPI_Iallreduce_c)(send, receive, count, type, op, comm, request); });
}

GRADWIRE_EXPORT int MPI_Ireduce_scatter_c(const void* send, void* receive, const MPI_Count counts[], MPI_Datatype type,
                                          MPI_Op op, MPI_Comm comm, MPI_Request* request) {
  return reduce_scatter(Requesting{request}, c_buffers(send, receive), counts, type, op, comm, [=] {
    return GRADWIRE_NEXT(MPI_Ireduce_scatter_c)(send, receive, counts, type, op, comm, request);
  });
}

GRADWIRE_EXPORT int MPI_Ireduce_scatter_block_c(const void* send, void* receive, MPI_Count count, MPI_Datatype type,
                                                MPI_Op op, MPI_Comm comm, MPI_Request* request) {
  return reduce_scatter_block(Requesting{request}, c_buffers(send, receive), count, type, op, comm, [=] {
    return GRADWIRE_NEXT(MPI_Ireduce_scatter_block_c)(send, receive, count, type, op, comm, request);
  });
}

// Persistent requests are counted when they are made, not when they start.
GRADWIRE_EXPORT int MPI_Allreduce_init(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op,
                                       MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  count_persistent(Function::mpi_allreduce_init, count, type, comm);
  return GRADWIRE_NEXT(MPI_Allreduce_init)(send, receive, count, type, op, comm, info, request);
}

GRADWIRE_EXPORT int MPI_Allreduce_init_c(const void* send, void* receive, MPI_Count count, MPI_Datatype type, MPI_Op op,
                                         MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  count_persistent(Function::mpi_allreduce_init, count, type, comm);
  return GRADWIRE_NEXT(MPI_Allreduce_init_c)(send, receive, count, type, op, comm, info, request);
}

GRADWIRE_EXPORT int MPI_Reduce_scatter_init(const void* send, void* receive, const int counts[], MPI_Datatype type,
                                            MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  count_persistent(Function::mpi_reduce_scatter_init, counts, type, comm);
  return GRADWIRE_NEXT(MPI_Reduce_scatter_init)(send, receive, counts, type, op, comm, info, request);
}

GRADWIRE_EXPORT int MPI_Reduce_scatter_init_c(const void* send, void* receive, const MPI_Count counts[],
                                              MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Info info,
                                              MPI_Request* request) {
  count_persistent(Function::mpi_reduce_scatter_init, counts, type, comm);
  return GRADWIRE_NEXT(MPI_Reduce_scatter_init_c)(send, receive, counts, type, op, comm, info, request);
}

GRADWIRE_EXPORT int MPI_Reduce_scatter_block_init(const void* send, void* receive, int count, MPI_Datatype type,
                                                  MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  count_persistent(Function::mpi_reduce_scatter_block_init, std::int64_t{count} * size_of(comm), type, comm);
  return GRADWIRE_NEXT(MPI_Reduce_scatter_block_init)(send, receive, count, type, op, comm, info, request);
}

GRADWIRE_EXPORT int MPI_Reduce_scatter_block_init_c(const void* send, void* receive, MPI_Count count, MPI_Datatype type,
                                                    MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  count_persistent(Function::mpi_reduce_scatter_block_init, count * size_of(comm), type, comm);
  return GRADWIRE_NEXT(MPI_Reduce_scatter_block_init_c)(send, receive, count, type, op, comm, info, request);
}

extern "C" {
GRADWIRE_ALSO(MPI_Iallreduce_c);
GRADWIRE_ALSO(MPI_Ireduce_scatter_c);
GRADWIRE_ALSO(MPI_Ireduce_scatter_block_c);
GRADWIRE_ALSO(MPI_Allreduce_init);
GRADWIRE_ALSO(MPI_Allreduce_init_c);
GRADWIRE_ALSO(MPI_Reduce_scatter_init);
GRADWIRE_ALSO(MPI_Reduce_scatter_init_c);
GRADWIRE_ALSO(MPI_Reduce_scatter_block_init);
GRADWIRE_ALSO(MPI_Reduce_scatter_block_init_c);
}
#endif
