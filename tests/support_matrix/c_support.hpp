// Uses the C API in a world of this process alone, for the rows of the matrix. A status that is not GRADWIRE_OK becomes
// the Error that it stands for.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/error.hpp"
#include "gradwire/mpi.h"

namespace gradwire::support {

/// Calls MPI_Init once; this test ends MPI in its main().
inline void start_mpi() {
  int started = 0;
  MPI_Initialized(&started);
  if (started == 0) {
    MPI_Init(nullptr, nullptr);
  }
}

inline void must(gradwire_status status) {
  static_assert(static_cast<int>(ErrorCode::invalid_argument) == GRADWIRE_INVALID_ARGUMENT - 1);
  static_assert(static_cast<int>(kLastErrorCode) == GRADWIRE_TOO_FEW - 1);
  if (status != GRADWIRE_OK) {
    throw Error(static_cast<ErrorCode>(status - 1), gradwire_last_error());
  }
}

/// Makes a struct of options or results that states its size.
template <typename T>
T sized() {
  T value{};
  value.struct_size = sizeof value;
  return value;
}

/// Owns an object that the C API makes, until the end of its scope.
template <typename Handle>
class Owned {
 public:
  explicit Owned(void (*destroy)(Handle*)) : destroy_(destroy) {}
  ~Owned() { destroy_(handle_); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  [[nodiscard]] Handle* get() const noexcept { return handle_; }
  [[nodiscard]] Handle** to() noexcept { return &handle_; }

 private:
  void (*destroy_)(Handle*);
  Handle* handle_ = nullptr;
};

/// A session of one rank, and memory for one tensor, which outlives it.
class SessionInC {
 public:
  static constexpr std::uint64_t kCount = 5000;

  explicit SessionInC(const std::string& policy_text,
                      const gradwire_session_options& options = sized<gradwire_session_options>())
      : made_(&gradwire_session_destroy) {
    start_mpi();
    Owned<gradwire_policy> policy(&gradwire_policy_destroy);
    must(gradwire_policy_parse(policy_text.c_str(), nullptr, policy.to()));
    must(gradwire_session_create_mpi(MPI_COMM_SELF, policy.get(), &options, made_.to()));
  }
  [[nodiscard]] gradwire_session* get() const noexcept { return made_.get(); }

  /// Adds the gradient as "w".
  SessionInC& add() {
    must(gradwire_session_add(get(), "w", gradient.data(), kCount, GRADWIRE_F32, &tensor));
    return *this;
  }
  /// Adds the gradient with its parameter and its momentum.
  SessionInC& add_with_parameters() {
    auto beside = sized<gradwire_tensor_parameters>();
    void* states[] = {momentum.data()};
    beside.parameter = parameter.data();
    beside.states = states;
    beside.state_count = 1;
    must(gradwire_session_add_with_parameters(get(), "w", gradient.data(), kCount, GRADWIRE_F32, &beside, &tensor));
    return *this;
  }
  SessionInC& add_with_scale() {
    auto options = sized<gradwire_tensor_options>();
    options.scale = scale.data();
    must(gradwire_session_add_with_options(get(), "w", gradient.data(), kCount, GRADWIRE_F32, &options, &tensor));
    return *this;
  }
  void step(int times = 1) const {
    for (int i = 0; i < times; ++i) {
      must(gradwire_session_ready(get(), tensor));
      must(gradwire_session_finish(get(), nullptr));
    }
  }

  std::vector<float> gradient = std::vector<float>(kCount, 1), parameter = std::vector<float>(kCount, 1),
                     momentum = std::vector<float>(kCount), scale = std::vector<float>(kCount, 1),
                     other = std::vector<float>(kCount);
  std::uint32_t tensor = 0;

 private:
  Owned<gradwire_session> made_;
};

/// A communicator of one rank.
class CommunicatorInC {
 public:
  explicit CommunicatorInC(const gradwire_communicator_options& options = sized<gradwire_communicator_options>())
      : made_(&gradwire_communicator_destroy) {
    start_mpi();
    must(gradwire_communicator_create_mpi(MPI_COMM_SELF, &options, made_.to()));
  }
  [[nodiscard]] gradwire_communicator* get() const noexcept { return made_.get(); }

 private:
  Owned<gradwire_communicator> made_;
};

inline gradwire_table_options rows_in_c() {
  auto options = sized<gradwire_table_options>();
  options.rows = 10;
  options.width = 2;
  options.learning_rate = 1;
  return options;
}

/// A table of one rank, with 10 rows of 2 elements.
class TableInC {
 public:
  explicit TableInC(const gradwire_table_options& options = rows_in_c()) : made_(&gradwire_table_destroy) {
    start_mpi();
    must(gradwire_table_create_mpi(MPI_COMM_SELF, nullptr, &options, made_.to()));
  }
  [[nodiscard]] gradwire_table* get() const noexcept { return made_.get(); }

 private:
  Owned<gradwire_table> made_;
};

}  // namespace gradwire::support
