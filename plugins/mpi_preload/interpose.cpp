// The functions that the job calls instead of the library's, under their own names (preload, link order) and under
// those of gradwire/replace/mpi.h. What is not here goes to the library as ever.
#include "plugins/mpi_preload/interpose.hpp"

#include <numeric>
#include <vector>

#define GRADWIRE_EXPORT extern "C" __attribute__((visibility("default")))
// The same function under the name of the replacement header.
#define GRADWIRE_ALSO(name) __typeof__(name) gradwire_##name __attribute__((alias(#name), visibility("default")))

namespace {

using gradwire::drop_in::Function;
using gradwire::mpi_preload::cached_state;
using gradwire::mpi_preload::conclude;
using gradwire::mpi_preload::count_nonblocking;
using gradwire::mpi_preload::judge;
using gradwire::mpi_preload::passes_at_once;
using gradwire::mpi_preload::Reduce;
using gradwire::mpi_preload::Verdict;

// The ranks of a communicator; 0 where that is not known, and then nothing but its error will come of it.
int size_of(MPI_Comm comm) noexcept {
  if (const auto* state = cached_state(comm)) {
    return state->size;
  }
  int size = 0;
  return comm != MPI_COMM_NULL && gradwire::mpi_preload::find_state(comm) != nullptr &&
                 PMPI_Comm_size(comm, &size) == MPI_SUCCESS
             ? size
             : 0;
}

// The sum, or a negative number where one of them is negative.
template <typename Count>
std::int64_t sum_of(const Count counts[], int size) noexcept {
  std::int64_t sum = 0;
  for (int rank = 0; rank < size; ++rank) {
    if (counts[rank] < 0) {
      return -1;
    }
    sum += counts[rank];
  }
  return sum;
}

// `segments` makes what the call does not have yet.
template <typename Segments>
Verdict judge_segments(Reduce call, const Segments& segments) noexcept {
  try {
    const std::vector<std::uint64_t> counts = segments();
    call.counts = counts;
    return judge(call);
  } catch (...) {
    return {};
  }
}

template <typename Count>
void count_nonblocking(Function function, const Count counts[], MPI_Datatype type, MPI_Comm comm) noexcept {
  if (counts != nullptr) {
    count_nonblocking(function, sum_of(counts, size_of(comm)), type, comm);
  }
}

template <typename Count, typename Forward>
int reduce_scatter(const void* send, void* receive, const Count counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   const Forward& forward) {
  const int size = counts == nullptr ? 0 : size_of(comm);
  const std::int64_t total = counts == nullptr ? -1 : sum_of(counts, size);
  if (passes_at_once(Function::mpi_reduce_scatter, total, type, op, comm)) {
    return forward();
  }
  const Reduce call{Function::mpi_reduce_scatter, send, receive, total, {}, type, op, comm};
  return conclude(
      comm, judge_segments(call, [=] { return std::vector<std::uint64_t>(counts, counts + (total < 0 ? 0 : size)); }),
      forward);
}

template <typename Forward>
int reduce_scatter_block(const void* send, void* receive, std::int64_t count, MPI_Datatype type, MPI_Op op,
                         MPI_Comm comm, const Forward& forward) {
  const int size = size_of(comm);
  const std::int64_t total = count * size;
  if (passes_at_once(Function::mpi_reduce_scatter_block, total, type, op, comm)) {
    return forward();
  }
  const Reduce call{Function::mpi_reduce_scatter_block, send, receive, total, {}, type, op, comm};
  const std::uint64_t each = count < 0 ? 0 : static_cast<std::uint64_t>(count);
  return conclude(
      comm, judge_segments(call, [=] { return std::vector<std::uint64_t>(static_cast<std::size_t>(size), each); }),
      forward);
}

}  // namespace

GRADWIRE_EXPORT int MPI_Allreduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op,
                                  MPI_Comm comm) {
  if (passes_at_once(Function::mpi_allreduce, count, type, op, comm)) {
    return PMPI_Allreduce(send, receive, count, type, op, comm);
  }
  return conclude(comm, judge({Function::mpi_allreduce, send, receive, count, {}, type, op, comm}),
                  [=] { return PMPI_Allreduce(send, receive, count, type, op, comm); });
}

GRADWIRE_EXPORT int MPI_Reduce_scatter(const void* send, void* receive, const int counts[], MPI_Datatype type,
                                       MPI_Op op, MPI_Comm comm) {
  return reduce_scatter(send, receive, counts, type, op, comm,
                        [=] { return PMPI_Reduce_scatter(send, receive, counts, type, op, comm); });
}

GRADWIRE_EXPORT int MPI_Reduce_scatter_block(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op,
                                             MPI_Comm comm) {
  return reduce_scatter_block(send, receive, count, type, op, comm,
                              [=] { return PMPI_Reduce_scatter_block(send, receive, count, type, op, comm); });
}

GRADWIRE_EXPORT int MPI_Iallreduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op,
                                   MPI_Comm comm, MPI_Request* request) {
  count_nonblocking(Function::mpi_iallreduce, count, type, comm);
  return PMPI_Iallreduce(send, receive, count, type, op, comm, request);
}

GRADWIRE_EXPORT int MPI_Ireduce_scatter_block(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op,
                                              MPI_Comm comm, MPI_Request* request) {
  count_nonblocking(Function::mpi_ireduce_scatter_block, std::int64_t{count} * size_of(comm), type, comm);
  return PMPI_Ireduce_scatter_block(send, receive, count, type, op, comm, request);
}

GRADWIRE_EXPORT int MPI_Ireduce_scatter(const void* send, void* receive, const int counts[], MPI_Datatype type,
                                        MPI_Op op, MPI_Comm comm, MPI_Request* request) {
  count_nonblocking(Function::mpi_ireduce_scatter, counts, type, comm);
  return PMPI_Ireduce_scatter(send, receive, counts, type, op, comm, request);
}

GRADWIRE_EXPORT int MPI_Finalize() {
  gradwire::mpi_preload::finish();
  return PMPI_Finalize();
}

extern "C" {
GRADWIRE_ALSO(MPI_Allreduce);
GRADWIRE_ALSO(MPI_Reduce_scatter);
GRADWIRE_ALSO(MPI_Reduce_scatter_block);
GRADWIRE_ALSO(MPI_Iallreduce);
GRADWIRE_ALSO(MPI_Ireduce_scatter);
GRADWIRE_ALSO(MPI_Ireduce_scatter_block);
GRADWIRE_ALSO(MPI_Finalize);
}

#if MPI_VERSION >= 4  // counts beyond 2^31
GRADWIRE_EXPORT int MPI_Allreduce_c(const void* send, void* receive, MPI_Count count, MPI_Datatype type, MPI_Op op,
                                    MPI_Comm comm) {
  if (passes_at_once(Function::mpi_allreduce, count, type, op, comm)) {
    return PMPI_Allreduce_c(send, receive, count, type, op, comm);
  }
  return conclude(comm, judge({Function::mpi_allreduce, send, receive, count, {}, type, op, comm}),
                  [=] { return PMPI_Allreduce_c(send, receive, count, type, op, comm); });
}

GRADWIRE_EXPORT int MPI_Reduce_scatter_c(const void* send, void* receive, const MPI_Count counts[], MPI_Datatype type,
                                         MPI_Op op, MPI_Comm comm) {
  return reduce_scatter(send, receive, counts, type, op, comm,
                        [=] { return PMPI_Reduce_scatter_c(send, receive, counts, type, op, comm); });
}

GRADWIRE_EXPORT int MPI_Reduce_scatter_block_c(const void* send, void* receive, MPI_Count count, MPI_Datatype type,
                                               MPI_Op op, MPI_Comm comm) {
  return reduce_scatter_block(send, receive, count, type, op, comm,
                              [=] { return PMPI_Reduce_scatter_block_c(send, receive, count, type, op, comm); });
}

GRADWIRE_EXPORT int MPI_Iallreduce_c(const void* send, void* receive, MPI_Count count, MPI_Datatype type, MPI_Op op,
                                     MPI_Comm comm, MPI_Request* request) {
  count_nonblocking(Function::mpi_iallreduce, count, type, comm);
  return PMPI_Iallreduce_c(send, receive, count, type, op, comm, request);
}

GRADWIRE_EXPORT int MPI_Ireduce_scatter_c(const void* send, void* receive, const MPI_Count counts[], MPI_Datatype type,
                                          MPI_Op op, MPI_Comm comm, MPI_Request* request) {
  count_nonblocking(Function::mpi_ireduce_scatter, counts, type, comm);
  return PMPI_Ireduce_scatter_c(send, receive, counts, type, op, comm, request);
}

GRADWIRE_EXPORT int MPI_Ireduce_scatter_block_c(const void* send, void* receive, MPI_Count count, MPI_Datatype type,
                                                MPI_Op op, MPI_Comm comm, MPI_Request* request) {
  count_nonblocking(Function::mpi_ireduce_scatter_block, count * size_of(comm), type, comm);
  return PMPI_Ireduce_scatter_block_c(send, receive, count, type, op, comm, request);
}

// Persistent ones are counted when they are made, not when they start.
GRADWIRE_EXPORT int MPI_Allreduce_init(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op,
                                       MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  count_nonblocking(Function::mpi_allreduce_init, count, type, comm);
  return PMPI_Allreduce_init(send, receive, count, type, op, comm, info, request);
}

GRADWIRE_EXPORT int MPI_Allreduce_init_c(const void* send, void* receive, MPI_Count count, MPI_Datatype type, MPI_Op op,
                                         MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  count_nonblocking(Function::mpi_allreduce_init, count, type, comm);
  return PMPI_Allreduce_init_c(send, receive, count, type, op, comm, info, request);
}

GRADWIRE_EXPORT int MPI_Reduce_scatter_init(const void* send, void* receive, const int counts[], MPI_Datatype type,
                                            MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  count_nonblocking(Function::mpi_reduce_scatter_init, counts, type, comm);
  return PMPI_Reduce_scatter_init(send, receive, counts, type, op, comm, info, request);
}

GRADWIRE_EXPORT int MPI_Reduce_scatter_init_c(const void* send, void* receive, const MPI_Count counts[],
                                              MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Info info,
                                              MPI_Request* request) {
  count_nonblocking(Function::mpi_reduce_scatter_init, counts, type, comm);
  return PMPI_Reduce_scatter_init_c(send, receive, counts, type, op, comm, info, request);
}

GRADWIRE_EXPORT int MPI_Reduce_scatter_block_init(const void* send, void* receive, int count, MPI_Datatype type,
                                                  MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  count_nonblocking(Function::mpi_reduce_scatter_block_init, std::int64_t{count} * size_of(comm), type, comm);
  return PMPI_Reduce_scatter_block_init(send, receive, count, type, op, comm, info, request);
}

GRADWIRE_EXPORT int MPI_Reduce_scatter_block_init_c(const void* send, void* receive, MPI_Count count, MPI_Datatype type,
                                                    MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  count_nonblocking(Function::mpi_reduce_scatter_block_init, count * size_of(comm), type, comm);
  return PMPI_Reduce_scatter_block_init_c(send, receive, count, type, op, comm, info, request);
}

extern "C" {
GRADWIRE_ALSO(MPI_Allreduce_c);
GRADWIRE_ALSO(MPI_Reduce_scatter_c);
GRADWIRE_ALSO(MPI_Reduce_scatter_block_c);
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
