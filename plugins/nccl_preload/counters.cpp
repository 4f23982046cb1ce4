#include "plugins/nccl_preload/counters.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "gradwire/version.hpp"

namespace gradwire::nccl_preload {
namespace {

template <std::size_t N>
std::string name_in(const std::array<std::string_view, N>& names, int value) {
  return value >= 0 && static_cast<std::size_t>(value) < N ? std::string(names[static_cast<std::size_t>(value)])
                                                           : std::to_string(value);
}

std::string dtype_name(int dtype) {
  static constexpr std::array<std::string_view, 12> kNames = {"i8",  "u8",  "i32", "u32",  "i64",    "u64",
                                                              "f16", "f32", "f64", "bf16", "f8e4m3", "f8e5m2"};
  return name_in(kNames, dtype);
}

nlohmann::json op_name(int op) {
  static constexpr std::array<std::string_view, 5> kNames = {"sum", "prod", "max", "min", "avg"};
  if (op == kNoOp) {
    return nullptr;
  }
  return op == kScaledSum ? "scaled sum" : name_in(kNames, op);
}

}  // namespace

void Counters::add(const Observation& observation) {
  const std::lock_guard lock(mutex_);
  CallClass call = observation.call;
  if (classes_.size() >= kMostClasses && !classes_.contains(call)) {
    call.count = 0;
  }
  Sum& sum = classes_[call];
  ++sum.calls;
  sum.bytes_in += observation.bytes_in;
  sum.bytes_dense += observation.bytes_dense;
}

void Counters::note_communicator(int size, int rank) {
  const std::lock_guard lock(mutex_);
  if (size > world_ || (size == world_ && rank < rank_)) {
    world_ = size;
    rank_ = rank;
  }
}

bool Counters::empty() const {
  const std::lock_guard lock(mutex_);
  return classes_.empty();
}

bool Counters::speaks() const {
  const std::lock_guard lock(mutex_);
  return rank_ == 0;
}

std::string Counters::summary() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t calls = 0;
  std::map<std::string, std::uint64_t> by_reason;
  for (const auto& [call, sum] : classes_) {
    calls += sum.calls;
    by_reason[shim::text(call.reason)] += sum.calls;
  }
  std::vector<std::pair<std::string, std::uint64_t>> reasons(by_reason.begin(), by_reason.end());
  std::stable_sort(reasons.begin(), reasons.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text = "NCCL, this rank: " + std::to_string(calls) + " calls, none compressed";
  const char* separator = ": ";
  for (const auto& [reason, count] : reasons) {
    text += separator + std::to_string(count) + " " + reason;
    separator = ", ";
  }
  return text;
}

std::string Counters::report(const std::string& library) const {
  const std::lock_guard lock(mutex_);
  Sum total;
  nlohmann::json classes = nlohmann::json::array();
  for (const auto& [call, sum] : classes_) {
    total.calls += sum.calls;
    total.bytes_in += sum.bytes_in;
    total.bytes_dense += sum.bytes_dense;
    classes.push_back({{"function", shim::name_of(call.function)},
                       {"dtype", dtype_name(call.dtype)},
                       {"op", op_name(call.op)},
                       {"count", call.count},
                       {"communicator_size", call.communicator_size},
                       {"order", nullptr},
                       {"name", nullptr},
                       {"codec", nullptr},
                       {"calls", sum.calls},
                       {"compressed_calls", 0},
                       {"bytes_in", sum.bytes_in},
                       {"bytes_dense", sum.bytes_dense},
                       {"bytes_sent", sum.bytes_dense},
                       {"ratio", 1.0},
                       {"seconds", nullptr},
                       {"reason", shim::text(call.reason)}});
  }
  const nlohmann::json report = {{"gradwire", kVersion},
                                 {"world", world_},
                                 {"library", library},
                                 {"scope", "one rank"},
                                 {"dry_run", false},
                                 {"policy", nullptr},
                                 {"disabled", nullptr},
                                 {"totals",
                                  {{"calls", total.calls},
                                   {"compressed_calls", 0},
                                   {"bytes_in", total.bytes_in},
                                   {"bytes_dense", total.bytes_dense},
                                   {"bytes_sent", total.bytes_dense},
                                   {"ratio", 1.0},
                                   {"ratio_compressed", nullptr}}},
                                 {"classes", classes}};
  return report.dump(2) + "\n";
}

}  // namespace gradwire::nccl_preload
