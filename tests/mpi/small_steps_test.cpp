// Counts the costs of a small step over MPI: no allocation, no thread woken, one message for each peer, two looks at
// the clock.
#include <gtest/gtest.h>
#include <mpi.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <ctime>
#include <new>
#include <vector>

#include "gradwire/mpi.hpp"
#include "gradwire/session.hpp"

namespace {

thread_local bool t_counts = false;
thread_local int t_allocations = 0;
thread_local int t_clocks = 0;
thread_local int t_messages = 0;
thread_local int t_woken = 0;

}  // namespace

// These replace the functions that the library would call.
void* operator new(std::size_t bytes) {
  t_allocations += t_counts ? 1 : 0;
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) {
    return memory;
  }
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

std::chrono::steady_clock::time_point std::chrono::steady_clock::now() noexcept {
  t_clocks += t_counts ? 1 : 0;
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time_point(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
}

void std::condition_variable::notify_all() noexcept {
  t_woken += t_counts ? 1 : 0;
  pthread_cond_broadcast(native_handle());
}

extern "C" int MPI_Isend(const void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
                         MPI_Request* request) {
  t_messages += t_counts ? 1 : 0;
  return PMPI_Isend(data, count, type, peer, tag, comm, request);
}

extern "C" int MPI_Iallreduce(const void* from, void* to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                              MPI_Request* request) {
  t_messages += t_counts ? 1000 : 0;  // it may send as many as it likes
  return PMPI_Iallreduce(from, to, count, type, op, comm, request);
}

namespace gradwire::test {
namespace {

TEST(SmallStepsOverMpi, AllocateNothingWakeNobodyAndSendOneMessageAPeer) {
  constexpr int kSteps = 2000;
  int world = 0;
  int rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::vector<float> gradient(256);
  Session session = mpi::make_session(MPI_COMM_WORLD, Policy::uniform("exact", Algorithm::dense), {});
  const TensorId id = session.add("gradient", view(gradient.data(), gradient.size()));
  const auto step = [&] {
    gradient.assign(gradient.size(), static_cast<float>(rank));
    session.ready(id);
    session.finish();
  };
  for (int i = 0; i < 10; ++i) {
    step();
  }
  int allocations = 0;  // number of steps with allocations
  int clocks = 0;
  int messages = 0;
  int woken = 0;
  for (int i = 0; i < kSteps; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    t_allocations = t_clocks = t_messages = t_woken = 0;
    t_counts = true;
    step();
    t_counts = false;
    allocations += t_allocations > 0 ? 1 : 0;
    clocks += t_clocks > 2 ? 1 : 0;
    messages += t_messages != world - 1 ? 1 : 0;
    woken += t_woken > 0 ? 1 : 0;
    ASSERT_EQ(gradient.back(), static_cast<float>(world - 1) / 2);
  }
  // The progress thread, which looks every 5 ms, may take a step; a rank that lost its core waits for longer.
  EXPECT_LT(allocations, kSteps / 10);
  EXPECT_LT(clocks, kSteps / 4);
  EXPECT_LT(messages, kSteps / 10);
  EXPECT_LT(woken, kSteps / 10);
}

TEST(SmallStepsOverMpi, SumsAreTheSameOnAllRanksAtEverySize) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (const std::uint64_t count : {1U, 7U, 640U, 1360U, 1361U, 2720U, 4095U, 4096U, 4097U, 12000U, 16384U, 16385U}) {
    std::vector<float> gradient(count);
    Session session = mpi::make_session(MPI_COMM_WORLD, Policy::uniform("exact", Algorithm::dense),
                                        {.reduction = Reduction::sum, .compare_ranks_every = 1});
    const TensorId id = session.add("gradient", view(gradient.data(), count));
    for (int step = 0; step < 4; ++step) {
      std::vector<float> wanted(count);
      for (std::uint64_t i = 0; i < count; ++i) {
        gradient[i] = static_cast<float>((i * 31 + static_cast<std::uint64_t>(rank * 7 + step)) % 97);
      }
      MPI_Allreduce(gradient.data(), wanted.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      session.ready(id);
      session.finish();
      ASSERT_EQ(gradient, wanted) << count << " elements, step " << step;
    }
  }
}

}  // namespace
}  // namespace gradwire::test
