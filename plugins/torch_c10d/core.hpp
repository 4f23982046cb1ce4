// One process group without Torch: the ranks' agreement, what becomes of each reduction, and the thread that makes
// them.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "drop_in/call_queue.hpp"
#include "drop_in/member.hpp"
#include "transport/tcp/tcp_transport.hpp"

namespace gradwire::torch_c10d {

struct CoreOptions {
  int rank = 0;
  int world_size = 1;
  std::chrono::milliseconds timeout{std::chrono::minutes(5)};  // or GRADWIRE_TIMEOUT, where that is set and shorter
  bool first = true;                                           // the job's first group: its rank 0 reports
};

/// One reduction that the ranks may compress. Its memory stays until `done` was called.
struct Posted {
  drop_in::Function function = drop_in::Function::c10d_all_reduce;
  DType dtype = DType::f32;
  Reduction reduction = Reduction::sum;
  const void* input = nullptr;
  void* output = nullptr;
  std::uint64_t count = 0;                  // of the input
  std::vector<std::uint64_t> counts = {};   // reduce_scatter: of each rank
  std::string name = {};                    // of the buffer
  std::optional<std::uint64_t> order = {};  // in the step, where that is known
  std::function<void()> pass = {};          // the same by the library, dense; blocks
  std::function<void(std::exception_ptr)> done = {};
};

class Core {
 public:
  /// Collective. Throws Error(timeout) that names the rank that did not come.
  Core(const transport::Rendezvous& store, const CoreOptions& options);
  /// Waits for what was posted.
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  /// Whether such a reduction is to be posted, on every rank alike; else it is counted as passed, and the caller passes
  /// it at once. `reduction`, `dtype`: empty where they are none that codecs know.
  [[nodiscard]] bool takes(drop_in::Function function, std::optional<DType> dtype, std::optional<Reduction> reduction,
                           std::uint64_t count, std::uint64_t bytes);
  /// Returns at once; reductions are made one after another.
  void post(Posted posted);
  /// An operation that is always passed on.
  void count_other(std::uint64_t bytes);

  /// Whether the thread that makes reductions asks, which cannot end it.
  [[nodiscard]] bool on_own_thread() const noexcept { return queue_ && queue_->on_own_thread(); }

  /// Whether names of buffers matter to the policy.
  [[nodiscard]] const drop_in::Configuration& configuration() const noexcept { return configuration_; }

 private:
  [[nodiscard]] drop_in::Agreement agree(const transport::Rendezvous& store) const;
  [[nodiscard]] std::shared_ptr<Transport> connect() const;
  [[nodiscard]] drop_in::Call describe(drop_in::Function function, std::optional<DType> dtype,
                                       std::optional<Reduction> reduction, std::uint64_t count) const;
  void make(const Posted& posted, std::uint64_t others);
  void route_and_make(const Posted& posted, std::uint64_t others);
  void make_both_ways(const Posted& posted, const drop_in::Member::Route& route);

  transport::Rendezvous store_;
  CoreOptions options_;
  drop_in::Configuration configuration_;
  drop_in::Agreement agreement_;
  bool only_exact_ = false;  // no call needs the thread to know where it goes
  std::unique_ptr<drop_in::Member> member_;
  std::uint64_t others_ = 0;  // calls that were not posted
  std::string failure_;       // the worker's: ranks are out of step
  std::unique_ptr<drop_in::CallQueue> queue_;
};

/// What this process counted; the same of all its groups.
[[nodiscard]] drop_in::Ledger& ledger();
/// Writes GRADWIRE_REPORT and the summary, once; on the rank 0 of the job's first group.
void report() noexcept;

}  // namespace gradwire::torch_c10d
