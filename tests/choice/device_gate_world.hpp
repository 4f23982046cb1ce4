// Plays the ranks of a communicator of devices, each with a gate of its own, in one thread: times are scripted, come
// late, are lost, and differ between ranks.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "choice/device_gate.hpp"

namespace gradwire::choice {

inline constexpr std::uint64_t kApart = 64;  // calls between two exchanges
inline constexpr std::uint64_t kMiB = 1 << 20;

inline ChoiceClass gate_class(std::uint64_t bytes) {
  return {.function = Function::nccl_all_reduce, .dtype = DType::f32, .size = size_class(bytes)};
}

struct Script {
  int ranks = 3;
  std::size_t ways = 2;
  /// Seconds of a call in which no rank waits for a late one.
  std::function<double(std::uint64_t call, Way way, int rank)> seconds = [](std::uint64_t, Way, int) { return 1e-3; };
  std::uint64_t late = 20;  // calls until a rank learns a time
  std::function<bool(std::uint64_t call, int rank)> lost = [](std::uint64_t, int) { return false; };
  std::function<bool(std::uint64_t bytes, int rank)> has_memory = [](std::uint64_t, int) { return true; };
  std::size_t calls_in_step = 0;                                  // 0: steps are not known
  std::function<double(Way way)> rest = [](Way) { return 0.0; };  // seconds of a step beside its calls
};

class GateWorld {
 public:
  explicit GateWorld(Script script) : script_(std::move(script)), ranks_(static_cast<std::size_t>(script_.ranks)) {}

  Way call(std::uint64_t bytes = kMiB) {
    ++calls_;
    learn();
    if (calls_ % kApart == 0) {
      exchange();
    }
    if (script_.calls_in_step > 0 && (calls_ - 1) % script_.calls_in_step == 0) {
      begin_step();
    }
    std::array<double, 2> longest{};
    std::optional<DeviceGate::Turn> first;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const auto turn = ranks_[rank].gate.next(gate_class(bytes), bytes, script_.ways);
      if (!first) {
        first = turn;
      }
      EXPECT_EQ(turn.way, first->way) << "call " << calls_ << ", rank " << rank;
      EXPECT_EQ(turn.trial.has_value(), first->trial.has_value()) << "call " << calls_ << ", rank " << rank;
      const int number = static_cast<int>(rank);
      const double in_use = script_.seconds(calls_, turn.way, number);
      const double rival = turn.trial ? script_.seconds(calls_, turn.trial->rival, number) : 0;
      longest = {std::max(longest[0], in_use), std::max(longest[1], rival)};
      if (turn.trial && first->trial) {
        EXPECT_EQ(turn.trial->rival, first->trial->rival);
        EXPECT_EQ(turn.trial->rival_first, first->trial->rival_first);
        if (!script_.lost(calls_, number)) {
          ranks_[rank].late.push_back({calls_ + script_.late, [=, &gate = ranks_[rank].gate] {
                                         gate.timed(turn.trial->number, in_use, rival);
                                       }});
        }
      }
    }
    total += longest[0];
    probes += longest[1];
    nccl += longest_of(0);
    step_seconds_ += longest[0] + longest[1];
    latest = *first;
    return first->way;
  }
  Way calls(std::uint64_t count, std::uint64_t bytes = kMiB) {
    Way way = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      way = call(bytes);
    }
    return way;
  }
  [[nodiscard]] DeviceGate& gate(std::size_t rank = 0) { return ranks_[rank].gate; }
  [[nodiscard]] std::uint64_t made() const { return calls_; }
  [[nodiscard]] std::uint64_t trials() const { return ranks_[0].gate.trials(); }

  double total = 0;   // seconds of the calls for the job
  double probes = 0;  // seconds of the rivals' calls
  double nccl = 0;    // seconds, had all calls been NCCL's
  DeviceGate::Turn latest;

 private:
  struct Late {
    std::uint64_t at;
    std::function<void()> learn;
  };
  struct Rank {
    DeviceGate gate;
    std::deque<Late> late;
  };

  double longest_of(Way way) const {
    double longest = 0;
    for (int rank = 0; rank < script_.ranks; ++rank) {
      longest = std::max(longest, script_.seconds(calls_, way, rank));
    }
    return longest;
  }
  void learn() {
    for (Rank& rank : ranks_) {
      while (!rank.late.empty() && rank.late.front().at <= calls_) {
        rank.late.front().learn();
        rank.late.pop_front();
      }
    }
  }
  // The result of an exchange counts at the next one.
  void exchange() {
    std::vector<std::uint32_t> largest(DeviceGate::kWords, 0);
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (!said_.empty()) {
        ranks_[rank].gate.heard(said_);
      }
      std::vector<std::uint32_t> words(DeviceGate::kWords);
      ranks_[rank].gate.say(words, [&](const DeviceGate::Asked& asked) {
        return script_.has_memory(*asked.sizes.rbegin(), static_cast<int>(rank));
      });
      for (std::size_t i = 0; i < words.size(); ++i) {
        largest[i] = std::max(largest[i], words[i]);
      }
    }
    said_ = largest;
  }
  void begin_step() {
    const double seconds = step_seconds_ + script_.rest(latest.way);
    for (Rank& rank : ranks_) {
      const std::uint64_t step = rank.gate.begin_step();
      if (step > 0) {
        rank.late.push_back({calls_ + script_.late, [=, &gate = rank.gate] { gate.step_took(step - 1, seconds); }});
      }
    }
    step_seconds_ = 0;
  }

  Script script_;
  std::vector<Rank> ranks_;
  std::vector<std::uint32_t> said_;
  std::uint64_t calls_ = 0;
  double step_seconds_ = 0;
};

inline auto ratio_of(double ratio) {
  return [ratio](std::uint64_t, Way way, int) { return way == 0 ? 1e-3 : 1e-3 * ratio; };
}

}  // namespace gradwire::choice
