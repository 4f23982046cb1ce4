// The part of a process group that does not need Torch: the ranks' agreement, the decision about each reduction, and
// the thread that makes them.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "drop_in/call_queue.hpp"
#include "drop_in/host_reducer.hpp"
#include "plugins/torch_c10d/call_watch.hpp"
#include "plugins/torch_c10d/observing.hpp"
#include "transport/tcp/tcp_transport.hpp"

namespace gradwire::torch_c10d {

struct GroupEngineOptions {
  int rank = 0;
  int world_size = 1;
  std::chrono::milliseconds timeout{std::chrono::minutes(5)};  // or GRADWIRE_TIMEOUT, if that is set and shorter
  bool first = true;                                           // the job's first group: its rank 0 reports
  std::string host = {};                                       // identifies the rank's host; empty: this one
};

/// A reduction that the job asked for.
struct Asked {
  choice::Function function = choice::Function::c10d_all_reduce;
  std::optional<DType> dtype = {};          // empty: codecs do not support it
  std::optional<Reduction> reduction = {};  // empty: another operation
  std::uint64_t count = 0;                  // of the input
  std::uint64_t bytes = 0;
  const void* buffer = nullptr;  // the input
  bool dense = true;             // its elements have no gaps
};

/// A reduction that the library makes. It is counted when it has ended.
struct PassedCall {
  drop_in::CallClass what = {};
  drop_in::CallTotals totals = {};
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  std::shared_ptr<CallWatch> watch = {};      // null: nothing watches it
  std::uint64_t number = 0;                   // of the call in `watch`
  std::shared_ptr<Observing> observing = {};  // null: nothing observes it

  /// To be called once, on any thread, also after the group's end. `error` is the library's, null if there is none.
  /// Returns the error for the caller: `error`, or one that names the calls of ranks that differ.
  std::exception_ptr ended(std::exception_ptr error) const noexcept;
};

/// A reduction that the ranks may compress. It must own its memory: if ranks differ, `done` is called before the
/// library's own call has ended.
struct Posted {
  Asked asked = {};
  void* output = nullptr;
  std::vector<std::uint64_t> counts = {};             // reduce_scatter: of each rank
  std::function<void()> pass = {};                    // makes it with the library; blocks
  std::function<void(std::exception_ptr)> done = {};  // called once, on any thread
};

class GroupEngine {
 public:
  /// Collective. Throws Error(timeout) that names the rank that did not join.
  GroupEngine(const transport::Rendezvous& store, const GroupEngineOptions& options);
  /// Waits for the posted reductions.
  ~GroupEngine();
  GroupEngine(const GroupEngine&) = delete;
  GroupEngine& operator=(const GroupEngine&) = delete;

  /// Decides about the next reduction, the same on every rank. Returns no value if it is to be posted; else the caller
  /// passes it at once. `fail` (may be empty) ends a passed call with an error if another rank compresses it; it may be
  /// called on any thread. Throws if an earlier call differed between ranks.
  [[nodiscard]] std::optional<PassedCall> passes(const Asked& asked, std::function<void(const std::string&)> fail = {});
  /// A reduction of which passes() said that it does not. Returns at once; reductions are made one after another.
  void post(Posted posted);
  /// Counts an operation that is always passed on.
  void count_other_call(std::uint64_t bytes, bool failed);

  /// Whether some all-reduce of this group may be compressed. If not, each goes to the library unchanged.
  [[nodiscard]] bool may_compress() const noexcept { return queue_ && !only_exact_; }
  /// Whether reductions may be posted. Then there is a thread, which also passes those that are not compressed.
  [[nodiscard]] bool has_thread() const noexcept { return queue_ != nullptr; }
  /// Whether the caller is one of the group's own threads, which cannot destroy the group.
  [[nodiscard]] bool on_own_thread() const noexcept {
    return (queue_ && queue_->on_own_thread()) || (watch_ && watch_->on_own_thread());
  }

  /// This rank's configuration, whose policy may match names of buffers.
  [[nodiscard]] const drop_in::Configuration& configuration() const noexcept { return configuration_; }

 private:
  [[nodiscard]] drop_in::AgreedSettings agree(const transport::Rendezvous& store);
  void begin_observing();
  void observe(PassedCall& passed, const Asked& asked) const;
  [[nodiscard]] std::shared_ptr<Transport> connect();
  [[nodiscard]] choice::Call describe(const Asked& asked) const;
  void make(const Posted& posted, std::uint64_t others);
  void route_and_make(const Posted& posted, std::uint64_t others);
  void make_both_ways(const Posted& posted, const drop_in::HostReducer::Route& route);
  void pass(const Posted& posted, const drop_in::HostReducer::Route& route);
  void compress(const Posted& posted, const drop_in::HostReducer::Route& route);
  void abort(const std::string& why) noexcept;
  void count_failed(const Asked& asked) const;

  transport::Rendezvous store_;
  GroupEngineOptions options_;
  drop_in::Configuration configuration_;
  Observing::Hosts hosts_;  // of this group's ranks
  drop_in::AgreedSettings agreement_;
  bool only_exact_ = false;  // the policy compresses no call
  std::unique_ptr<drop_in::HostReducer> reducer_;
  std::uint64_t other_calls_ = 0;  // calls that were not posted
  std::string failure_;            // of the thread: ranks are out of step
  Mutex transport_mutex_;
  std::shared_ptr<Transport> transport_ GUARDED_BY(transport_mutex_);  // once the ranks are connected
  std::shared_ptr<CallWatch> watch_;  // if some calls may be compressed while others pass
  std::unique_ptr<drop_in::CallQueue> queue_;
  std::shared_ptr<Observing> observing_;  // null: this process does not report what was observed
};

/// The counts of this process, which all its groups share.
[[nodiscard]] drop_in::Ledger& ledger();
/// Writes GRADWIRE_REPORT and the summary, once, on rank 0 of the job's first group.
void report() noexcept;

}  // namespace gradwire::torch_c10d
