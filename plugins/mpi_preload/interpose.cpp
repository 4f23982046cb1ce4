// The functions that the job calls instead of the library's, under their own names (preload, link order) and under
// those of gradwire/replace/mpi.h. All functions that are neither here nor in interpose_requests.cpp are the library's.
#include "plugins/mpi_preload/describe.hpp"
#include "plugins/mpi_preload/early_end.hpp"
#include "plugins/mpi_preload/job_functions.hpp"
#include "plugins/mpi_preload/observed.hpp"
#include "plugins/mpi_preload/process.hpp"
#include "transport/mpi_spawned.hpp"

namespace gradwire::mpi_preload {

void begin() noexcept {
  note_rank_process();
  transport::name_spawned_world();
  after_init();
  watch_for_an_early_end();
  begin_metrics();
  begin_recording();
}

namespace {

// A session frees its private communicators when it ends, so the report learns here that the program has one.
void note_session(MPI_Comm comm) noexcept {
  if (comm != MPI_COMM_NULL && may_act() && !process().has_session && is_private(comm)) {
    process().has_session = true;
  }
}

}  // namespace

}  // namespace gradwire::mpi_preload

using namespace gradwire::mpi_preload;  // NOLINT(google-build-using-namespace): only calls of it follow

GRADWIRE_EXPORT int MPI_Allreduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op,
                                  MPI_Comm comm) {
  return all_reduce(Blocking{}, c_buffers(send, receive), count, type, op, comm,
                    [=] { return GRADWIRE_NEXT(MPI_Allreduce)(send, receive, count, type, op, comm); });
}

GRADWIRE_EXPORT int MPI_Reduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, int root,
                               MPI_Comm comm) {
  return reduce(c_buffers(send, receive), count, type, op, root, comm,
                [=] { return GRADWIRE_NEXT(MPI_Reduce)(send, receive, count, type, op, root, comm); });
}

GRADWIRE_EXPORT int MPI_Reduce_scatter(const void* send, void* receive, const int counts[], MPI_Datatype type,
                                       MPI_Op op, MPI_Comm comm) {
  return reduce_scatter(Blocking{}, c_buffers(send, receive), counts, type, op, comm,
                        [=] { return GRADWIRE_NEXT(MPI_Reduce_scatter)(send, receive, counts, type, op, comm); });
}

GRADWIRE_EXPORT int MPI_Reduce_scatter_block(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op,
                                             MPI_Comm comm) {
  return reduce_scatter_block(Blocking{}, c_buffers(send, receive), count, type, op, comm, [=] {
    return GRADWIRE_NEXT(MPI_Reduce_scatter_block)(send, receive, count, type, op, comm);
  });
}

// Calls on the communicator that returned requests are completed first, since they go on after the job has freed it.
GRADWIRE_EXPORT int MPI_Comm_free(MPI_Comm* comm) {
  if (comm != nullptr) {
    note_session(*comm);
    drain_requests(*comm);
  }
  return GRADWIRE_NEXT(MPI_Comm_free)(comm);
}

GRADWIRE_EXPORT int MPI_Comm_disconnect(MPI_Comm* comm) {
  if (comm != nullptr) {
    drain_requests(*comm);
  }
  return GRADWIRE_NEXT(MPI_Comm_disconnect)(comm);
}

GRADWIRE_EXPORT int MPI_Init(int* argc, char*** argv) {
  int granted = MPI_THREAD_SINGLE;
  before_init();
  const int code = process().configuration.raise_threads
                       ? GRADWIRE_NEXT(MPI_Init_thread)(argc, argv, MPI_THREAD_MULTIPLE, &granted)
                       : GRADWIRE_NEXT(MPI_Init)(argc, argv);
  begin();
  return code;
}

GRADWIRE_EXPORT int MPI_Init_thread(int* argc, char*** argv, int required, int* granted) {
  before_init();
  const int code = GRADWIRE_NEXT(MPI_Init_thread)(
      argc, argv, process().configuration.raise_threads ? MPI_THREAD_MULTIPLE : required, granted);
  begin();
  return code;
}

GRADWIRE_EXPORT int MPI_Finalize() {
  if (!in_child()) {
    finish();
  }
  return GRADWIRE_NEXT(MPI_Finalize)();
}

extern "C" {
GRADWIRE_ALSO(MPI_Allreduce);
GRADWIRE_ALSO(MPI_Reduce);
GRADWIRE_ALSO(MPI_Reduce_scatter);
GRADWIRE_ALSO(MPI_Reduce_scatter_block);
GRADWIRE_ALSO(MPI_Comm_free);
GRADWIRE_ALSO(MPI_Comm_disconnect);
GRADWIRE_ALSO(MPI_Init);
GRADWIRE_ALSO(MPI_Init_thread);
GRADWIRE_ALSO(MPI_Finalize);
}

#if MPI_VERSION >= 4  // counts beyond 2^31
GRADWIRE_EXPORT int MPI_Allreduce_c(const void* send, void* receive, MPI_Count count, MPI_Datatype type, MPI_Op op,
                                    MPI_Comm comm) {
  return all_reduce(Blocking{}, c_buffers(send, receive), count, type, op, comm,
                    [=] { return GRADWIRE_NEXT(MPI_Allreduce_c)(send, receive, count, type, op, comm); });
}

GRADWIRE_EXPORT int MPI_Reduce_c(const void* send, void* receive, MPI_Count count, MPI_Datatype type, MPI_Op op,
                                 int root, MPI_Comm comm) {
  return reduce(c_buffers(send, receive), count, type, op, root, comm,
                [=] { return GRADWIRE_NEXT(MPI_Reduce_c)(send, receive, count, type, op, root, comm); });
}

GRADWIRE_EXPORT int MPI_Reduce_scatter_c(const void* send, void* receive, const MPI_Count counts[], MPI_Datatype type,
                                         MPI_Op op, MPI_Comm comm) {
  return reduce_scatter(Blocking{}, c_buffers(send, receive), counts, type, op, comm,
                        [=] { return GRADWIRE_NEXT(MPI_Reduce_scatter_c)(send, receive, counts, type, op, comm); });
}

GRADWIRE_EXPORT int MPI_Reduce_scatter_block_c(const void* send, void* receive, MPI_Count count, MPI_Datatype type,
                                               MPI_Op op, MPI_Comm comm) {
  return reduce_scatter_block(Blocking{}, c_buffers(send, receive), count, type, op, comm, [=] {
    return GRADWIRE_NEXT(MPI_Reduce_scatter_block_c)(send, receive, count, type, op, comm);
  });
}

extern "C" {
GRADWIRE_ALSO(MPI_Allreduce_c);
GRADWIRE_ALSO(MPI_Reduce_c);
GRADWIRE_ALSO(MPI_Reduce_scatter_c);
GRADWIRE_ALSO(MPI_Reduce_scatter_block_c);
}
#endif
