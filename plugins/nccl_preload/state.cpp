#include "plugins/nccl_preload/state.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <utility>
#include <vector>

#include "base/environment.hpp"
#include "base/units.hpp"
#include "drop_in/observed_calls.hpp"
#include "plugins/nccl_preload/real.hpp"

GRADWIRE_NCCL_DECLARE(ncclResult_t, ncclGetVersion, (int*))

namespace gradwire::nccl_preload {
namespace {

/// The process that reports. A forked child inherits the ledger, but does not report it.
const pid_t kProcess = getpid();

/// Null until the first call: in a program that never uses NCCL, tell() must not make a State.
constinit std::atomic<State*> made = nullptr;

std::string ask_library_name() {
  int version = 0;
  if (GRADWIRE_NCCL_REAL(ncclGetVersion)(&version) != ncclSuccess) {
    return "NCCL";
  }
  return "NCCL " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

/// "NCCL, this rank: 12 calls, none compressed: 10 device path not built, 2 below the floor", or "... 9 compressed,
/// ratio 3.9 on these: 3 below the floor".
std::string summary(const State& self) {
  drop_in::CallTotals compressed;
  std::uint64_t calls = 0;
  std::map<std::string, std::uint64_t> by_reason;
  for (const auto& [call, totals] : self.ledger.classes()) {
    calls += totals.calls;
    if (call.reason == choice::Reason::none) {
      compressed.add(totals);
    } else {
      by_reason[choice::text(call.reason)] += totals.calls;
    }
  }
  std::vector<std::pair<std::string, std::uint64_t>> reasons(by_reason.begin(), by_reason.end());
  std::stable_sort(reasons.begin(), reasons.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text = "NCCL, this rank: " + std::to_string(calls) + " calls, ";
  if (compressed.compressed_calls == 0) {
    text += "none compressed";
  } else {
    text += std::to_string(compressed.compressed_calls) +
            (self.configuration.dry_run ? " would be compressed, ratio " : " compressed, ratio ") +
            format_number(compressed.ratio(), 3) + " on these";
  }
  const char* separator = ": ";
  for (const auto& [reason, count] : reasons) {
    text += separator + std::to_string(count) + " " + reason;
    separator = ", ";
  }
  if (by_reason.contains(choice::text(choice::Reason::observing))) {
    text += "; GRADWIRE_CODEC=int8 compresses what was observed";
  }
  if (const std::uint64_t waits = self.ledger.waits(); waits > 0) {
    text += "; " + std::to_string(waits) + (waits == 1 ? " call" : " calls") + " waited for the ranks' times";
  }
  if (compressed.compressed_calls == 0 && (by_reason.contains(choice::text(choice::Reason::role_open)) ||
                                           by_reason.contains(choice::text(choice::Reason::no_gradient)))) {
    text += "; a rule of a policy, or roles = \"all\", says which calls carry gradients";
  }
  const std::string& why = self.configuration.disabled;
  return why.empty() ? text : text + " (" + why + ")";
}

void write_report(const State& self, const std::string& file) {
  const drop_in::ReportHead head{.world_size = self.largest.get().size,
                                 .implementation = self.implementation,
                                 .dry_run = self.configuration.dry_run,
                                 .policy = self.configuration.planner.policy().source,
                                 .disabled = self.configuration.disabled,
                                 .note = "numbers of one rank",
                                 .has_key = environment("GRADWIRE_KEY").has_value()};
  if (const auto problem = drop_in::write_report(file, drop_in::report_json(head, self.ledger))) {
    std::fprintf(stderr, "gradwire: %s\n", problem->c_str());
  }
}

/// Each process that is rank 0 of a communicator writes the choices made there. Others follow rank 0.
void write_choices(State& self) {
  if (!self.configuration.recording) {
    return;
  }
  for (const auto& reducer : self.communicators.reducers()) {
    reducer->record_choices();
  }
  const drop_in::ChoicesOfJob choices = self.ledger.choices();
  if (choices.empty()) {
    return;
  }
  const std::string problem = drop_in::write_choices(
      *self.configuration.recording, drop_in::choices_to_text(choices, self.configuration.policy_fingerprint()));
  if (!problem.empty()) {
    std::fprintf(stderr, "gradwire: %s\n", problem.c_str());
  }
}

/// Runs at the end of the process, or when the drop-in is unloaded. Rank 0 of the largest communicator reports, or a
/// process that saw no communicator.
__attribute__((destructor)) void tell() {
  unseen([] {
    if (made == nullptr || getpid() != kProcess) {
      return;
    }
    State& self = *made;
    write_choices(self);
    if (!self.ledger.any() || self.largest.get().rank != 0) {
      return;
    }
    if (!self.configuration.quiet) {
      std::fprintf(stderr, "gradwire: %s\n", summary(self).c_str());
    }
    if (self.configuration.report) {
      if (self.configuration.observes()) {
        self.ledger.add_observed(self.observation.observed());
      }
      write_report(self, *self.configuration.report + ".nccl");
    }
  });
}

/// The rank in the metrics is that in the largest communicator, from the first call on a communicator on.
void begin_metrics() noexcept {
  drop_in::observe_process({.part = "nccl",
                            .rank = []() -> std::optional<int> {
                              const RankInCommunicator seat = made.load()->largest.get();
                              return seat.size > 0 ? std::optional(seat.rank) : std::nullopt;
                            },
                            .calls = [] { return drop_in::replaced_calls(made.load()->ledger); }});
}

}  // namespace

State::State() : implementation(ask_library_name()) {}

State& state() {
  static State& instance = [&]() -> State& {
    made = new State;  // NOLINT(cppcoreguidelines-owning-memory): never destroyed
    begin_metrics();
    return *made;
  }();
  return instance;
}

}  // namespace gradwire::nccl_preload
