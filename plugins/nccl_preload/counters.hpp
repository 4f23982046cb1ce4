// Counts collective calls by class, with the reason why each was passed on, and tells at the end of the process: a line
// or two on standard error, and the report that GRADWIRE_REPORT asks for (docs/drop-in-nccl.md).
#pragma once

#include <nccl.h>

#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "api/shim/decision.hpp"

namespace gradwire::nccl_preload {

/// The function takes no operation.
inline constexpr int kNoOp = -1;
/// An operation made by ncclRedOpCreatePreMulSum; its handles differ from run to run.
inline constexpr int kScaledSum = -2;

/// What calls of one class have in common.
struct CallClass {
  shim::Function function = shim::Function::other;
  int dtype = 0;   // ncclDataType_t, as given
  int op = kNoOp;  // ncclRedOp_t as given, or one of the two above
  std::uint64_t count = 0;
  int communicator_size = 0;  // 0: unknown
  shim::Reason reason = shim::Reason::none;

  friend auto operator<=>(const CallClass&, const CallClass&) = default;
};

struct Observation {
  CallClass call;
  std::uint64_t bytes_in = 0;     // in this rank's send buffer
  std::uint64_t bytes_dense = 0;  // that this rank would send, uncompressed
};

class Counters {
 public:
  /// Above kMostClasses new classes no longer tell counts apart (count 0), so that memory stays bounded.
  void add(const Observation& observation);
  /// A communicator is in use; the largest one says which process speaks for the job.
  void note_communicator(int size, int rank);

  [[nodiscard]] bool empty() const;
  /// Rank 0 of the largest communicator, or no communicator at all.
  [[nodiscard]] bool speaks() const;
  /// "NCCL: 12 calls, none compressed; passed through: 10 device path not built, 2 below the floor".
  [[nodiscard]] std::string summary() const;
  /// JSON text. `library` is NCCL's version.
  [[nodiscard]] std::string report(const std::string& library) const;

  static constexpr std::size_t kMostClasses = 2000;

 private:
  struct Sum {
    std::uint64_t calls = 0, bytes_in = 0, bytes_dense = 0;
  };

  mutable std::mutex mutex_;
  std::map<CallClass, Sum> classes_;
  int world_ = 0, rank_ = 0;
};

}  // namespace gradwire::nccl_preload
