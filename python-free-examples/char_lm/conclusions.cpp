#include "conclusions.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace char_lm {
namespace {

constexpr double kAlikePercent = 1;

template <typename... Values>
std::string format(const char* text, Values... values) {
  char buffer[512];
  std::snprintf(buffer, sizeof buffer, text, values...);
  return buffer;
}

std::string about_the_link(const RunResult& dense, const std::string& link) {
  const double share = 100 * dense.exposed_comm_ms / dense.ms_per_step;
  return format("%s dense training waited for gradients %.0f%% of its time, %.0f of %.0f ms a step: %s.",
                link.empty() ? "Without an emulated link" : ("Over the emulated " + link).c_str(), share,
                dense.exposed_comm_ms, dense.ms_per_step,
                share >= 50 ? "the link held it back" : "computing took longer than the link");
}

std::string about_the_time(const RunResult& dense, const RunResult& best) {
  const double times = dense.seconds / best.seconds;
  const double bytes = dense.bytes_sent_per_step / best.bytes_sent_per_step;
  if (times <= 1) {
    return format("No row was faster than dense: the fastest, %s, took %.1f s from start to end, dense %.1f s.",
                  best.policy.c_str(), best.seconds, dense.seconds);
  }
  return format(
      "The fastest row, %s, took %.1f s from start to end where dense took %.1f s: %.1f times as fast, with %.1f "
      "times fewer bytes.",
      best.policy.c_str(), best.seconds, dense.seconds, times, bytes);
}

std::string about_the_losses(const RunResult& dense, const std::vector<RunResult>& others) {
  std::string all, outside;
  for (const RunResult& row : others) {
    const double percent = 100 * (row.held_out_loss / dense.held_out_loss - 1);
    const std::string one = format("%s %+.2f%%", row.policy.c_str(), percent);
    all += (all.empty() ? "" : ", ") + one;
    if (!(std::abs(percent) <= kAlikePercent)) {  // NaN counts as outside
      outside += (outside.empty() ? "" : ", ") + one;
    }
  }
  return outside.empty() ? format("Every held-out loss is within %.0f%% of dense's %.4f: %s.", kAlikePercent,
                                  dense.held_out_loss, all.c_str())
                         : format("Not every held-out loss is within %.0f%% of dense's %.4f: %s.", kAlikePercent,
                                  dense.held_out_loss, outside.c_str());
}

}  // namespace

std::vector<std::string> conclude(const std::vector<RunResult>& rows, const std::string& link) {
  const RunResult* dense = nullptr;
  std::vector<RunResult> others;
  for (const RunResult& row : rows) {
    if (row.policy == "dense") {
      dense = &row;
    } else {
      others.push_back(row);
    }
  }
  if (dense == nullptr || others.empty()) {
    return {};
  }
  const auto best = std::min_element(others.begin(), others.end(),
                                     [](const RunResult& a, const RunResult& b) { return a.seconds < b.seconds; });
  return {about_the_link(*dense, link), about_the_time(*dense, *best), about_the_losses(*dense, others)};
}

}  // namespace char_lm
