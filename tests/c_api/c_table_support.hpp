// Makes tables of the job's ranks through the C API.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "c_api_support.hpp"
#include "gradwire/mpi.h"

namespace gradwire::test {

using Ids = std::vector<std::uint64_t>;
using Rows = std::vector<float>;

inline constexpr std::uint64_t kRows = 60;
inline constexpr std::uint32_t kWidth = 2;

inline gradwire_table_options options_of(const char* name = nullptr) {
  auto options = sized<gradwire_table_options>();
  options.name = name;
  options.rows = kRows;
  options.width = kWidth;
  options.learning_rate = 1;
  options.timeout_ms = 60000;
  return options;
}

inline Ids all_ids() {
  Ids ids(kRows);
  std::iota(ids.begin(), ids.end(), 0U);
  return ids;
}

/// Returns a folder of rank 0 for the files of all ranks.
inline std::string shared_folder() {
  std::string name = (std::filesystem::temp_directory_path() / "gradwire-c-table-XXXXXX").string();
  if (world_rank() == 0 && mkdtemp(name.data()) == nullptr) {
    ADD_FAILURE() << "cannot make " << name;
  }
  MPI_Bcast(name.data(), static_cast<int>(name.size()), MPI_CHAR, 0, MPI_COMM_WORLD);
  return name;
}

inline void remove_shared(const std::string& folder) {
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_rank() == 0) {
    std::filesystem::remove_all(folder);
  }
}

class CTable : public ::testing::Test {
 protected:
  void make(const gradwire_table_options& options, const gradwire_policy* policy = nullptr) {
    ASSERT_OK(gradwire_table_create_mpi(MPI_COMM_WORLD, policy, &options, &table));
    ASSERT_NE(table, nullptr);
  }
  void TearDown() override { gradwire_table_destroy(table); }

  [[nodiscard]] Rows pull(const Ids& ids) const {
    Rows rows(ids.size() * kWidth, -77.0F);
    EXPECT_OK(gradwire_table_pull(table, ids.data(), ids.size(), rows.data()));
    return rows;
  }
  [[nodiscard]] gradwire_status push(const Ids& ids, const Rows& gradients) const {
    return gradwire_table_push(table, ids.data(), ids.size(), gradients.data());
  }
  [[nodiscard]] gradwire_row_statistics statistics() const {
    auto found = sized<gradwire_row_statistics>();
    EXPECT_OK(gradwire_table_statistics(table, &found));
    return found;
  }

  gradwire_table* table = nullptr;
};

}  // namespace gradwire::test
