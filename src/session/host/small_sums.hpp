// The buckets of a small step as native sums, made at once on the calling thread. An executor would do the same with a
// schedule of one lane for each bucket; this class needs no schedule. Its messages are the same.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "exchange/tiers.hpp"
#include "gradwire/reduction.hpp"
#include "gradwire/statistics.hpp"
#include "gradwire/transport.hpp"
#include "memory/block.hpp"
#include "observe/event.hpp"
#include "observe/peer_waits.hpp"
#include "plan/plan.hpp"
#include "session/step/step_info.hpp"

namespace gradwire::session {

class SmallSums {
 public:
  struct Options {
    bool crowded = false;          // ranks share cores
    observe::SourceId source = 0;  // the source of the events
  };
  /// The transport must outlive this.
  SmallSums(Transport& transport, Reduction reduction, std::chrono::milliseconds timeout, Options options);
  SmallSums(const SmallSums&) = delete;
  SmallSums& operator=(const SmallSums&) = delete;
  ~SmallSums() { give_up(); }

  /// From now on this tells `waits`, which must outlive it, how long it waits.
  void watch_peers(observe::PeerWaits* waits) noexcept { peer_waits_ = waits; }
  /// Whether the buckets of a plan have few bytes together.
  [[nodiscard]] static bool are_small(const plan::Plan& plan);

  /// Sums all buckets of the plan, which is the same in every call; one thread at a time. Throws Error(timeout), or the
  /// transport's error. Returns whether a result has NaN or Inf.
  bool reduce(const plan::Plan& plan, std::span<const TensorMemory> memory, const StepInfo& step);
  /// Adds the counts of the last reduce() to the statistics of groups.
  void count(const plan::Plan& plan, std::span<Statistics> groups) const;
  /// After an error: takes back the operations under way. Memory that the transport may still touch is leaked.
  void give_up() noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  struct Sum {
    Operation operation;
    std::byte* values = nullptr;
  };

  void prepare(const plan::Plan& plan);
  void load(const plan::Bucket& bucket, std::span<const TensorMemory> memory, std::byte* values) const;
  /// Returns whether the result has NaN or Inf.
  bool store(const plan::Bucket& bucket, std::span<const TensorMemory> memory, std::byte* values) const;
  [[nodiscard]] bool over() const noexcept;
  [[nodiscard]] std::vector<int> others() const;
  void note(const plan::Plan& plan, std::uint64_t step, std::uint64_t began) const noexcept;
  void await(const plan::Plan& plan, const StepInfo& step);
  void await_patiently(const plan::Plan& plan, const StepInfo& step);

  Transport& transport_;
  Reduction reduction_;
  std::chrono::milliseconds timeout_;
  Options options_;
  observe::PeerWaits* peer_waits_ = nullptr;
  std::vector<Sum> sums_;  // by bucket
  memory::Block values_;
};

}  // namespace gradwire::session
