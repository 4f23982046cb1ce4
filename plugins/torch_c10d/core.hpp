// One process group without Torch: the ranks' agreement, what becomes of each reduction, and the thread that makes
// them.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "drop_in/call_queue.hpp"
#include "drop_in/member.hpp"
#include "plugins/torch_c10d/call_watch.hpp"
#include "plugins/torch_c10d/observing.hpp"
#include "transport/tcp/tcp_transport.hpp"

namespace gradwire::torch_c10d {

struct CoreOptions {
  int rank = 0;
  int world_size = 1;
  std::chrono::milliseconds timeout{std::chrono::minutes(5)};  // or GRADWIRE_TIMEOUT, where that is set and shorter
  bool first = true;                                           // the job's first group: its rank 0 reports
  std::string host = {};                                       // where this rank is; empty: on this machine
};

/// A reduction that the job asked for.
struct Asked {
  choice::Function function = choice::Function::c10d_all_reduce;
  std::optional<DType> dtype = {};          // empty: none that codecs know
  std::optional<Reduction> reduction = {};  // empty: another operation
  std::uint64_t count = 0;                  // of the input
  std::uint64_t bytes = 0;
  const void* buffer = nullptr;             // the input
  bool dense = true;                        // its elements lie there without gaps
  std::string name = {};                    // of the buffer
  std::optional<std::uint64_t> order = {};  // in the step, where that is known
  std::uint32_t sequence = 0;               // who counts `order`
};

/// One that the library makes; it is counted when it has ended.
struct PassedCall {
  drop_in::CallClass what = {};
  drop_in::CallTotals totals = {};
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  std::shared_ptr<CallWatch> watch = {};      // null: nothing watches it
  std::uint64_t number = 0;                   // there
  std::shared_ptr<Observing> observing = {};  // null: nothing observes it

  /// Once, on any thread, also after the group has gone. `error`: of the library; null where there is none. Returns
  /// what the caller is to be given: `error`, or one that names the calls of ranks that differ.
  std::exception_ptr ended(std::exception_ptr error) const noexcept;
};

/// One that the ranks may compress. Its memory stays as long as this does: where ranks differ, `done` comes before the
/// library's own call has ended.
struct Posted {
  Asked asked = {};
  void* output = nullptr;
  std::vector<std::uint64_t> counts = {};             // reduce_scatter: of each rank
  std::function<void()> pass = {};                    // the same by the library, dense; blocks
  std::function<void(std::exception_ptr)> done = {};  // once; any thread
};

class Core {
 public:
  /// Collective. Throws Error(timeout) that names the rank that did not come.
  Core(const transport::Rendezvous& store, const CoreOptions& options);
  /// Waits for what was posted.
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  /// Decides about the next reduction, on every rank alike. Empty: it is to be posted; else the caller passes it at
  /// once. `fail` (may be empty): ends a passed call with an error where another rank compresses it; any thread.
  /// Throws where an earlier call has differed between ranks.
  [[nodiscard]] std::optional<PassedCall> passes(const Asked& asked, std::function<void(const std::string&)> fail = {});
  /// A reduction of which passes() said that it does not. Returns at once; reductions are made one after another.
  void post(Posted posted);
  /// An operation that is always passed on.
  void count_other(std::uint64_t bytes, bool failed);

  /// Whether some all-reduce of this group may be compressed. If not, each goes to the library as it is.
  [[nodiscard]] bool may_compress() const noexcept { return queue_ && !only_exact_; }
  /// Whether reductions may be posted, so that there is a thread that passes what is not compressed of them.
  [[nodiscard]] bool has_thread() const noexcept { return queue_ != nullptr; }
  /// Whether one of the group's own threads asks, which cannot end it.
  [[nodiscard]] bool on_own_thread() const noexcept {
    return (queue_ && queue_->on_own_thread()) || (watch_ && watch_->on_own_thread());
  }

  /// Whether names of buffers matter to the policy.
  [[nodiscard]] const drop_in::Configuration& configuration() const noexcept { return configuration_; }

 private:
  [[nodiscard]] drop_in::Agreement agree(const transport::Rendezvous& store);
  void begin_observing();
  void observe(PassedCall& passed, const Asked& asked) const;
  [[nodiscard]] std::shared_ptr<Transport> connect();
  [[nodiscard]] choice::Call describe(const Asked& asked) const;
  void make(const Posted& posted, std::uint64_t others);
  void route_and_make(const Posted& posted, std::uint64_t others);
  void make_both_ways(const Posted& posted, const drop_in::Member::Route& route);
  void pass(const Posted& posted, const drop_in::Member::Route& route);
  void compress(const Posted& posted, const drop_in::Member::Route& route);
  void abort(const std::string& why) noexcept;
  void count_failed(const Asked& asked) const;

  transport::Rendezvous store_;
  CoreOptions options_;
  drop_in::Configuration configuration_;
  Observing::Hosts hosts_;  // of this group's ranks
  drop_in::Agreement agreement_;
  bool only_exact_ = false;  // no call needs the thread to know where it goes
  std::unique_ptr<drop_in::Member> member_;
  std::uint64_t others_ = 0;  // calls that were not posted
  std::string failure_;       // the worker's: ranks are out of step
  std::mutex transport_mutex_;
  std::shared_ptr<Transport> transport_;  // once the ranks are connected
  std::shared_ptr<CallWatch> watch_;      // where calls may be compressed and others pass
  std::unique_ptr<drop_in::CallQueue> queue_;
  std::shared_ptr<Observing> observing_;  // null: nobody here tells what was observed
};

/// What this process counted; the same of all its groups.
[[nodiscard]] drop_in::Ledger& ledger();
/// Writes GRADWIRE_REPORT and the summary, once; on the rank 0 of the job's first group.
void report() noexcept;

}  // namespace gradwire::torch_c10d
