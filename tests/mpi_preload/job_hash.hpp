// Computes a hash of the results of all ranks, which programs print.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/mpi_preload/plain_job.hpp"

namespace job {

class Hash {
 public:
  template <typename T>
  void add(const T* values, std::size_t count) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(values);
    for (std::size_t i = 0; i < count * sizeof(T); ++i) {
      value_ = (value_ ^ bytes[i]) * 1099511628211U;
    }
  }
  template <typename T>
  void add(const std::vector<T>& values) {
    add(values.data(), values.size());
  }

  // Returns, on rank 0, one value that depends on all ranks' hashes.
  [[nodiscard]] unsigned long long of_all_ranks() const {
    std::vector<std::uint64_t> all(static_cast<std::size_t>(g_size));
    MPI_Gather(&value_, 1, MPI_UINT64_T, all.data(), 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    Hash whole;
    whole.add(all);
    return whole.value_;
  }

 private:
  std::uint64_t value_ = 14695981039346656037U;
};

}  // namespace job
