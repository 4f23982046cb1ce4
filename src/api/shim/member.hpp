// One rank's part in one communicator: which of its calls are compressed, how, and with which residuals. Knows no MPI:
// who makes one says how to connect the ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/shim/configuration.hpp"
#include "api/shim/decision.hpp"
#include "api/shim/ledger.hpp"
#include "api/shim/step_tracker.hpp"
#include "gradwire/communicator.hpp"
#include "plan/call_plan.hpp"

namespace gradwire::shim {

class Member {
 public:
  /// A transport between the ranks of the communicator. Called once, by every rank, inside the first call that is
  /// compressed.
  using Connect = std::function<std::shared_ptr<Transport>()>;

  /// `configuration` and `ledger` must outlive it.
  Member(const Configuration& configuration, Ledger& ledger, const Agreement& agreement, Connect connect);

  struct Route {
    Decision decision;
    CallClass what;     // to count it as
    plan::Stage stage;  // where it is compressed: the codecs
    Algorithm algorithm = Algorithm::two_shot;
    FeedbackBuffer* feedback = nullptr;  // where the codec wants one
  };

  /// What a rank knows of a call's place in the job; may differ between ranks but for `others`.
  struct Origin {
    std::string_view name = {};    // of the buffer; empty: none
    const void* buffer = nullptr;  // the one that is read
    std::uint64_t others = 0;      // calls on the communicator so far that did not come to route()
  };

  /// Decides about the next call. Every rank asks for the same calls in the same order: a call that could be
  /// compressed counts in the step whether it is or not.
  [[nodiscard]] Route route(const Call& call, std::string_view op, const Origin& origin);

  /// Does what route() said, and counts it. On an Error the ranks are out of step: make no more of these calls.
  void all_reduce(const Route& route, ConstView input, View output);
  void reduce_scatter(const Route& route, ConstView input, View output, std::span<const std::uint64_t> counts);
  /// Counts a call that was passed through, or would have been compressed in a dry run.
  void count_passed(const Route& route, std::uint64_t bytes, double seconds);

  [[nodiscard]] const Settings& settings() const noexcept { return settings_; }
  [[nodiscard]] bool dry_run() const noexcept { return dry_run_; }
  /// Bytes of the residuals it holds.
  [[nodiscard]] std::uint64_t residual_bytes() const;

 private:
  // One call of the step.
  struct Slot {
    std::optional<plan::CallPlan> plan;
    std::string name;
    std::unique_ptr<FeedbackBuffer> feedback;
  };

  [[nodiscard]] Slot& slot_of(const Call& call, const StepTracker::Place& place, std::string_view name);
  void find_step();
  [[nodiscard]] bool all_say(std::uint64_t value);
  [[nodiscard]] Communicator& communicator();
  [[nodiscard]] CallOptions options(const Route& route) const;
  void count(const Route& route, const Statistics& statistics);

  const Configuration& configuration_;
  Ledger& ledger_;
  Settings settings_;
  bool dry_run_;
  bool by_name_ = false;   // the policy has rules that ask for names
  bool by_order_ = false;  // or for the order of calls
  bool by_step_ = false;   // or has codecs that need the step
  Connect connect_;
  std::optional<Communicator> communicator_;
  StepTracker tracker_;
  std::uint64_t passed_ = 0;  // calls here that could not be compressed
  std::uint64_t others_ = 0;  // these and those elsewhere, at the latest that could
  std::vector<Slot> slots_;   // by order; empty while the step is not known
};

}  // namespace gradwire::shim
