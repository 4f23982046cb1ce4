#include "drop_in/observed_calls.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <utility>

namespace gradwire::drop_in {
namespace {

using observe::ReplacedCalls;
using Key = std::pair<std::string, std::string>;

// Keeps counts from going down: a communicator that is being freed is for a moment neither among the existing ones nor
// in the ledger.
std::vector<ReplacedCalls> keep_from_falling(const std::vector<ReplacedCalls>& now,
                                             std::map<Key, ReplacedCalls>& before) {
  for (const ReplacedCalls& each : now) {
    ReplacedCalls& most = before.try_emplace({each.function, each.reason}, each).first->second;
    most.calls = std::max(most.calls, each.calls);
    most.bytes_in = std::max(most.bytes_in, each.bytes_in);
    most.bytes_sent = std::max(most.bytes_sent, each.bytes_sent);
    most.seconds = std::max(most.seconds, each.seconds);
    most.bytes_dense = std::max(most.bytes_dense, each.bytes_dense);
  }
  std::vector<ReplacedCalls> all;
  all.reserve(before.size());
  for (const auto& [key, calls] : before) {
    all.push_back(calls);
  }
  return all;
}

}  // namespace

std::vector<ReplacedCalls> replaced_calls(const Ledger& ledger) {
  std::map<Key, ReplacedCalls> sums;
  for (const auto& [call, totals] : ledger.classes()) {
    const Key key{name_of(call.function), text(call.reason)};
    ReplacedCalls& sum = sums[key];
    sum.function = key.first;
    sum.reason = key.second;
    sum.calls += totals.calls;
    sum.bytes_in += totals.bytes_in;
    sum.bytes_sent += totals.bytes_sent;
    sum.seconds += totals.seconds;
    sum.bytes_dense += totals.bytes_dense;
  }
  std::vector<ReplacedCalls> calls;
  calls.reserve(sums.size());
  for (auto& [key, sum] : sums) {
    calls.push_back(std::move(sum));
  }
  return calls;
}

void observe_process(const ObservedProcess& process) noexcept {
  try {
    observe::begin_watching(
        {.part = process.part,
         .rank = process.rank,
         .world_size = process.world_size,
         .replaced =
             [calls = process.calls, before = std::make_shared<std::map<Key, ReplacedCalls>>()] {
               return keep_from_falling(calls(), *before);
             },
         .warn = [](const std::string& text) { std::fputs(("gradwire: " + text + "\n").c_str(), stderr); }});
  } catch (...) {  // NOLINT(bugprone-empty-catch): no memory
  }
}

}  // namespace gradwire::drop_in
