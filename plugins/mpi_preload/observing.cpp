#include "plugins/mpi_preload/observing.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <new>
#include <vector>

#include "base/elapsed.hpp"
#include "choice/auto_call.hpp"
#include "drop_in/observation.hpp"
#include "plugins/mpi_preload/device_memory.hpp"
#include "plugins/mpi_preload/process.hpp"
#include "transport/mpi_faults.hpp"

namespace gradwire::mpi_preload {
namespace {

constexpr double kShareOfTheRun = 0.01;
constexpr double kMostSeconds = 1;
constexpr double kSafety = 3;  // a pass may take so many times as long as predicted
constexpr int kPasses = 3;
constexpr std::size_t kMostExchanged = 3;                      // most classes
constexpr std::uint64_t kMostBytes = std::uint64_t{16} << 20;  // most bytes of a call that is made again
constexpr std::uint64_t kSampleBytes = std::uint64_t{1} << 20;

std::unique_ptr<drop_in::Observation>& observation() {
  static auto* const instance = new std::unique_ptr<drop_in::Observation>;  // MPI_Finalize may come at exit
  return *instance;
}

drop_in::ObservedClass class_of(const drop_in::CallClass& what) {
  return {.function = what.function,
          .dtype = *what.dtype,
          .size = choice::size_class(what.count * element_bytes(*what.dtype)),
          .communicator_size = what.communicator_size};
}

// One class whose messages are made again; rank 0 decides it, and the others follow.
struct Again {
  std::uint64_t index = 0;  // index into the classes on rank 0
  std::uint64_t dense_bytes = 0;
  std::uint64_t part_bytes = 0;  // bytes of frames from each rank to each other in each of two hops
};
using Plan = std::array<Again, kMostExchanged>;

// The classes with the most bytes on all ranks together, as far as the time allows.
Plan plan_of(const drop_in::Forecast& forecast, int size, double budget) {
  Plan plan;
  std::size_t planned = 0;
  for (std::size_t i = 0; i < forecast.classes.size() && planned < plan.size(); ++i) {
    const drop_in::ForecastClass& one = forecast.classes[i];
    const bool sum =
        one.what.function == choice::Function::mpi_allreduce || one.what.function == choice::Function::mpi_iallreduce;
    const double cost = kSafety * kPasses * 2 * one.passed_seconds;
    if (!sum || one.what.communicator_size != size || one.what.dtype != DType::f32 || !one.ratio ||
        one.bytes > static_cast<double>(kMostBytes) || cost > budget) {
      continue;
    }
    budget -= cost;
    const double frame = one.bytes / *one.ratio / size;
    plan[planned++] = {.index = i,
                       .dense_bytes = static_cast<std::uint64_t>(one.bytes) / sizeof(float) * sizeof(float),
                       .part_bytes = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(frame))};
  }
  return plan;
}

// Takes the median pass, since an idle link may let the first one through in a burst.
template <typename Call>
double middle_seconds(MPI_Comm comm, const Call& call) {
  std::array<double, kPasses> seconds{};
  for (double& pass : seconds) {
    PMPI_Barrier(comm);
    const auto begin = std::chrono::steady_clock::now();
    call();
    pass = seconds_since(begin);
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[kPasses / 2];
}

void make_again(MPI_Comm comm, int size, const Again& again, const drop_in::ObservedClass& what) {
  // If a rank has no memory for it, no rank makes it.
  const std::size_t all = again.part_bytes * static_cast<std::size_t>(size);
  std::vector<float> values;
  std::vector<char> sent;
  std::vector<char> received;
  int has_memory = 1;
  try {
    values.resize(again.dense_bytes / sizeof(float));
    sent.resize(all);
    received.resize(all);
  } catch (const std::bad_alloc&) {
    has_memory = 0;
  }
  int all_have = 0;
  if (PMPI_Allreduce(&has_memory, &all_have, 1, MPI_INT, MPI_MIN, comm) != MPI_SUCCESS || all_have == 0) {
    return;
  }
  const double dense = middle_seconds(comm, [&] {
    PMPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_FLOAT, MPI_SUM, comm);
  });
  const int part = static_cast<int>(again.part_bytes);
  const double frames = middle_seconds(comm, [&] {
    for (int hop = 0; hop < 2; ++hop) {
      PMPI_Alltoall(sent.data(), part, MPI_CHAR, received.data(), part, MPI_CHAR, comm);
    }
  });
  if (what.communicator_size == size) {
    observation()->measured_transfer(what, again.dense_bytes, dense,
                                     2 * again.part_bytes * static_cast<std::uint64_t>(size - 1), frames);
  }
}

void exchange_real_messages(int rank, int size) {
  struct Message {
    Plan plan;
    std::array<drop_in::ObservedClass, kMostExchanged> classes{};
  };
  Message message;
  if (rank == 0) {
    const drop_in::Observed observed = observation()->observed();
    const drop_in::Forecast forecast = drop_in::forecast_of(observed);
    message.plan = plan_of(forecast, size, std::min(kMostSeconds, kShareOfTheRun * observed.run_seconds));
    for (std::size_t i = 0; i < message.plan.size(); ++i) {
      if (message.plan[i].dense_bytes > 0) {
        message.classes[i] = forecast.classes[message.plan[i].index].what;
      }
    }
  }
  PMPI_Bcast(&message, sizeof message, MPI_BYTE, 0, MPI_COMM_WORLD);
  if (message.plan[0].dense_bytes == 0) {
    return;
  }
  // This is no duplicate, which would run the copy callbacks of the job's attributes.
  MPI_Comm own = MPI_COMM_NULL;
  if (PMPI_Comm_split(MPI_COMM_WORLD, 0, rank, &own) != MPI_SUCCESS) {
    return;
  }
  PMPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
  for (std::size_t i = 0; i < message.plan.size() && message.plan[i].dense_bytes > 0; ++i) {
    make_again(own, size, message.plan[i], message.classes[i]);
  }
  PMPI_Comm_free(&own);
}

}  // namespace

void begin_observing() { observation() = std::make_unique<drop_in::Observation>(process().configuration.planner); }

void observe_values(const Reduce& call, const drop_in::CallClass& what) noexcept {
  try {
    if (what.reason != choice::Reason::observing || !observation() || !what.dtype ||
        !observation()->wants_sample(class_of(what))) {
      return;
    }
    const void* from = call.send == MPI_IN_PLACE ? call.receive : call.send;
    if (from == nullptr || is_device_memory(from)) {
      return;
    }
    const std::uint64_t most = kSampleBytes / element_bytes(*what.dtype);
    observation()->sample(class_of(what), {from, std::min(what.count, most), *what.dtype});
  } catch (...) {  // NOLINT(bugprone-empty-catch): there is no memory for a sample
  }
}

void observe_seconds(const drop_in::CallClass& what, double seconds, std::uint64_t calls) noexcept {
  try {
    if (observation() && what.dtype && what.count > 0) {
      observation()->note_for(class_of(what), what.count * element_bytes(*what.dtype), seconds, calls);
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): there is no memory to note it
  }
}

std::uint64_t next_look(std::uint64_t call, double cost, double call_seconds) noexcept {
  return observation() ? observation()->next_look(call, cost, call_seconds) : 0;
}

void end_observing(int rank, int size, bool all_ranks_have_drop_in) {
  if (!observation()) {
    return;
  }
  if (all_ranks_have_drop_in && size > 1 && !transport::tolerates_faults()) {
    // The job's error handler must not see errors of our own calls.
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    PMPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler);
    PMPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    exchange_real_messages(rank, size);
    PMPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    PMPI_Errhandler_free(&handler);
  }
  process().ledger.add_observed(observation()->observed());
}

}  // namespace gradwire::mpi_preload
