// A job as its users write it: plain MPI without gradwire. It runs with and without the preload.
#pragma once

#include <mpi.h>
#include <algorithm>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace job {

inline int g_rank = 0;
inline int g_size = 1;
inline int g_failures = 0;

#define JOB_CHECK(condition)                                                             \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::printf("[rank %d] %s:%d: %s\n", job::g_rank, __FILE__, __LINE__, #condition); \
      ++job::g_failures;                                                                 \
    }                                                                                    \
  } while (false)

/// Returns a value in [-1, 1] that every rank knows for every rank.
inline float value_of(int rank, std::size_t i) {
  const std::uint32_t mixed =
      (static_cast<std::uint32_t>(i) * 2654435761U) ^ (static_cast<std::uint32_t>(rank) * 40503U);
  return static_cast<float>(static_cast<std::int32_t>(mixed * 2246822519U)) / 2147483648.0F;
}

inline std::vector<float> values_of(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = value_of(rank, i);
  }
  return values;
}

/// Returns whole numbers, whose sums are exact in any type.
template <typename T>
std::vector<T> ramp(std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const int value = static_cast<int>(i % 100) + g_rank;
    values[i] = static_cast<T>(value);
  }
  return values;
}

/// Returns the sum of the ranks' ramps.
template <typename T>
T ramp_sum(std::size_t i) {
  const int sum = static_cast<int>(i % 100) * g_size + g_size * (g_size - 1) / 2;
  return static_cast<T>(sum);
}

inline double sum_at(std::size_t i, int size) {
  double sum = 0;
  for (int rank = 0; rank < size; ++rank) {
    sum += value_of(rank, i);
  }
  return sum;
}

/// Returns whether all ranks of `comm` hold the same bytes.
inline bool same_everywhere(const std::vector<float>& values, MPI_Comm comm) {
  std::uint64_t hash = 14695981039346656037U;
  const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
  for (std::size_t i = 0; i < values.size() * sizeof(float); ++i) {
    hash = (hash ^ bytes[i]) * 1099511628211U;
  }
  int size = 0;
  MPI_Comm_size(comm, &size);
  std::vector<std::uint64_t> all(static_cast<std::size_t>(size));
  MPI_Allgather(&hash, 1, MPI_UINT64_T, all.data(), 1, MPI_UINT64_T, comm);
  return std::all_of(all.begin(), all.end(), [&](std::uint64_t other) { return other == hash; });
}

/// Returns the number of elements that are not the nearest float of the exact sum; checks that each is within the error
/// of int8.
inline std::size_t compare(const float* values, std::size_t first, std::size_t count, int size) {
  const double bound = 2.0 * size / 254 * 1.05;
  std::size_t different = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double exact = sum_at(first + i, size);
    if (std::fabs(values[i] - exact) > bound) {
      std::printf("element %zu: %g, not %g\n", first + i, static_cast<double>(values[i]), exact);
      ++g_failures;
      break;
    }
    different += std::fabs(values[i] - exact) > 1e-5 ? 1U : 0U;
  }
  return different;
}

constexpr int kCount = 20000;  // enough floats to be compressed

/// Makes a call that the preload compresses, and checks it.
void reduce_on(MPI_Comm comm);
/// Returns the memory of this process.
long resident_kib();

/// Reduces on a communicator of an MPI session before and after `init`; without sessions, it only calls `init`.
void early_session(void (*init)());

// The cases, by topic.
void exact_types();
void exact_shapes();
void compressed();
void rooted();
void communicators();
void intercommunicator();
void requests();
void threads();
void errors();
void steps();
void equal_layers();
void late_rank();
void short_of_something();
void early_exit();
void overlap();
void aliased();
void requests_only();
void request_programs();
void two_ranks();
void pipeline();
void requests_on_a_core();
void requests_given_up();
void fortran_reals();
void alternating();
void many_names();
void residuals();
void handlers();
void given_up();
void halves();
void idle();
void measured();
void crossed_threads();
void nonfinite();
void ended();
void own_handlers();
void communicator_churn();
void communicators_alive();
void two_threads();
void own_calls();
void random_programs();
void solver();
void gram();
void clusters();
void osu();
void each_call();

}  // namespace job
