// Plays the ranks of a communicator, each an AutoCall, in one thread: they get their answers together.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "choice/auto_call.hpp"

namespace gradwire::choice {

inline constexpr std::uint64_t kBytes = 1 << 20;
inline constexpr double kExchange = 5e-6;

inline ChoiceClass class_of(std::uint64_t bytes, Function function = Function::mpi_allreduce) {
  return {.function = function, .dtype = DType::f32, .size = size_class(bytes)};
}

// Ranks that make the same calls. `duration(call, way, rank)` is the duration of a call in which no rank waits for a
// late one.
class World {
 public:
  using Duration = std::function<double(std::uint64_t call, Way way, int rank)>;

  World(int ranks, Duration duration, const Choices* script = nullptr) : duration_(std::move(duration)) {
    for (int rank = 0; rank < ranks; ++rank) {
      auto_calls_.push_back(script == nullptr ? std::make_unique<AutoCall>() : std::make_unique<AutoCall>(*script));
    }
  }

  // Returns the way of the job's result, which is the same on every rank.
  Way call(std::uint64_t bytes = kBytes, Function function = Function::mpi_allreduce, std::size_t ways = 2) {
    exchanged_ = exchange(class_of(bytes, function), bytes, ways);
    first_ = auto_calls_[0]->turn();
    for (std::size_t rank = 1; rank < auto_calls_.size(); ++rank) {
      const AutoCall::Turn turn = auto_calls_[rank]->turn();
      EXPECT_EQ(turn.way, first_.way);
      EXPECT_EQ(turn.timed, first_.timed);
      EXPECT_EQ(turn.trial, first_.trial);
      EXPECT_EQ(turn.passed_first, first_.passed_first);
      EXPECT_EQ(turn.left == nullptr, first_.left == nullptr);
      EXPECT_EQ(turn.left == nullptr ? 0 : *turn.left, first_.left == nullptr ? 0 : *first_.left);
      EXPECT_TRUE(turn.left == nullptr || *turn.left == 0 || turn.way == 0) << "only passed calls need no question";
    }
    asked_ += first_.timed || first_.trial ? 1 : 0;
    if (first_.trial) {
      EXPECT_EQ(first_.way, 0) << "the job gets the library's sum";
      make_trial(ways);
    } else {
      double longest = 0;
      for (std::size_t rank = 0; rank < auto_calls_.size(); ++rank) {
        const double seconds = duration_(calls_, first_.way, static_cast<int>(rank));
        longest = std::max(longest, seconds);
        if (first_.timed) {
          auto_calls_[rank]->measured(seconds + (exchanged_ ? 0 : late_[rank]));
        }
      }
      seconds_ += longest + (exchanged_ ? kExchange : 0);
    }
    ++calls_;
    return first_.way;
  }

  // From now on this rank has no memory for copies.
  void refuse_copies(std::size_t rank) { refuses_ = rank; }
  // From now on the results of this way are too far from the library's sum.
  void exclude(Way way) { excluded_.insert(way); }
  // Sets how long each rank waits from now on in calls before which ranks do not synchronise.
  void set_waiting(std::vector<double> seconds) { late_ = std::move(seconds); }
  void set_duration(Duration duration) { duration_ = std::move(duration); }
  [[nodiscard]] AutoCall& auto_call(std::size_t rank = 0) { return *auto_calls_[rank]; }
  [[nodiscard]] bool exchanged() const { return exchanged_; }
  [[nodiscard]] bool decided() const { return first_.decided; }
  [[nodiscard]] const AutoCall::Turn& turn() const { return first_; }
  [[nodiscard]] std::uint64_t trials() const { return trials_; }
  [[nodiscard]] double seconds() const { return seconds_; }
  [[nodiscard]] std::uint64_t asked() const { return asked_; }

 private:
  bool exchange(const ChoiceClass& what, std::uint64_t bytes, std::size_t ways) {
    std::vector<double> worst;
    for (std::size_t rank = 0; rank < auto_calls_.size(); ++rank) {
      const auto question = auto_calls_[rank]->begin(what, bytes, ways, [&] { return !refuses_ || *refuses_ != rank; });
      worst.resize(std::max(worst.size(), question.size()), -INFINITY);
      EXPECT_EQ(question.size(), worst.size());
      for (std::size_t i = 0; i < question.size(); ++i) {
        worst[i] = std::max(worst[i], question[i]);
      }
    }
    for (const auto& auto_call : auto_calls_) {
      if (!worst.empty()) {
        auto_call->answer(worst, kExchange);
      }
    }
    return !worst.empty();
  }

  // In each way, the slowest rank counts.
  void make_trial(std::size_t ways) {
    ++trials_;
    std::vector<double> worst(ways, 0);
    for (std::size_t way = 0; way < ways; ++way) {
      for (std::size_t rank = 0; rank < auto_calls_.size(); ++rank) {
        worst[way] = std::max(worst[way], duration_(calls_, static_cast<Way>(way), static_cast<int>(rank)));
      }
      seconds_ += worst[way];
      worst[way] = excluded_.contains(static_cast<Way>(way)) ? INFINITY : worst[way];
    }
    const double copying = kCopying * worst[0];
    seconds_ += 3 * kExchange + copying;
    for (const auto& auto_call : auto_calls_) {
      auto_call->concluded(worst, copying);
    }
  }

  static constexpr double kCopying = 0.05;
  Duration duration_;
  std::vector<std::unique_ptr<AutoCall>> auto_calls_;
  std::vector<double> late_ = std::vector<double>(64, 0.0);
  std::uint64_t calls_ = 0;
  std::uint64_t asked_ = 0;
  double seconds_ = 0;
  bool exchanged_ = false;
  std::optional<std::size_t> refuses_;
  std::set<Way> excluded_;
  std::uint64_t trials_ = 0;
  AutoCall::Turn first_;
};

inline World::Duration steady(double passed, double compressed) {
  return [=](std::uint64_t, Way way, int) { return way == 0 ? passed : compressed; };
}

}  // namespace gradwire::choice
