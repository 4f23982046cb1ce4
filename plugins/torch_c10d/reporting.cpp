#include "plugins/torch_c10d/reporting.hpp"

#include <atomic>
#include <cstdio>
#include <utility>

#include "base/units.hpp"
#include "drop_in/observed_calls.hpp"
#include "plugins/torch_c10d/group_engine.hpp"

namespace gradwire::torch_c10d {
namespace {

std::uint64_t failed_calls() {
  std::uint64_t calls = 0;
  for (const auto& [what, totals] : ledger().classes()) {
    calls += what.reason == choice::Reason::failed ? totals.calls : 0;
  }
  return calls;
}

// The last line of groups that only observe.
std::string observed_summary(const drop_in::ReportHead& head, const drop_in::Observed& observed) {
  drop_in::CallTotals all;
  drop_in::CallTotals eligible;
  for (const auto& [what, totals] : ledger().classes()) {
    all.add(totals);
    if (what.reason == choice::Reason::observing) {
      eligible.add(totals);
    }
  }
  std::string line = "no codec was named, so nothing was compressed: ";
  if (eligible.calls == 0) {
    line += "none of " + std::to_string(all.calls) + " calls could be";
  } else {
    line += std::to_string(eligible.calls) + " of " + std::to_string(all.calls) + " calls could be (" +
            format_bytes(eligible.bytes_in) + ", " + format_number(eligible.seconds, 3) + " s from call to end); ";
    const std::string forecast = forecast_text(drop_in::forecast_of(observed));
    line += forecast.empty() ? "GRADWIRE_CODEC=auto compresses those that it makes faster" : forecast;
  }
  return line + (head.note.empty() ? "" : " (" + head.note + ")");
}

}  // namespace

void say(const std::string& line) noexcept { std::fputs(("gradwire: " + line + "\n").c_str(), stderr); }

void tell_of_nonfinite() {
  static std::atomic<bool> told = false;
  if (!told.exchange(true)) {
    say(std::string(drop_in::kNonfiniteWarning));
  }
}

Reporting& reporting() {
  static auto* const instance = new Reporting;  // a group may end after static objects
  return *instance;
}

drop_in::Ledger& ledger() {
  static auto* const instance = new drop_in::Ledger;
  return *instance;
}

void report() noexcept {
  try {
    const MutexLock lock(reporting().mutex);
    auto head = std::exchange(reporting().head, std::nullopt);
    const auto observing = std::exchange(reporting().observing, nullptr);
    if (!head || !ledger().any()) {
      return;
    }
    const drop_in::Observed observed = observing ? observing->observed() : drop_in::Observed();
    ledger().add_observed(observed);
    if (const std::uint64_t failed = failed_calls(); failed > 0) {
      head->note += (head->note.empty() ? "" : "; ") + std::to_string(failed) +
                    (failed == 1 ? " call ended with an error" : " calls ended with an error");
    }
    if (const auto file = reporting().file) {
      if (const auto problem = drop_in::write_report(*file, drop_in::report_json(*head, ledger()))) {
        say(*problem);
      }
    }
    if (!reporting().quiet) {
      say(observing ? observed_summary(*head, observed) : drop_in::report_summary(*head, ledger()));
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): the job itself has ended well
  }
}

}  // namespace gradwire::torch_c10d
