// StepBuckets knows which tensors of the current step are ready, and whether each bucket is waiting, under way, or has
// ended. Buckets start in the order of the plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/plan.hpp"

namespace gradwire::session {

class StepBuckets {
 public:
  void add_tensor() { tensors_.emplace_back(); }
  /// Takes the plan of all tensors that were added.
  void set_plan(const plan::Plan& plan);
  /// Begins the next step.
  void reset();

  /// Counts a micro-step of the tensor that is not its last one.
  void accumulate(std::uint32_t tensor) { ++tensors_[tensor].micro_steps; }
  /// Marks the tensor as ready. Returns whether its bucket has all its tensors now.
  bool ready(std::uint32_t tensor);
  [[nodiscard]] bool is_ready(std::uint32_t tensor) const { return tensors_[tensor].ready; }
  [[nodiscard]] std::uint32_t bucket_of(std::uint32_t tensor) const { return tensors_[tensor].bucket; }
  /// Returns the largest number of micro-steps that any tensor had, and sets all counts to zero.
  [[nodiscard]] std::uint32_t take_micro_steps();

  /// Marks the next bucket as under way and returns its index.
  std::uint32_t start_next() noexcept { return static_cast<std::uint32_t>(next_++); }
  void start_all() noexcept { next_ = buckets_.size(); }
  void end(std::uint32_t bucket);
  /// Ends all buckets, including those that have not started.
  void end_all();

  [[nodiscard]] std::size_t size() const noexcept { return buckets_.size(); }
  /// Whether any tensor is ready.
  [[nodiscard]] bool in_step() const noexcept { return ready_ > 0; }
  [[nodiscard]] bool all_ready() const noexcept { return ready_ == tensors_.size(); }
  /// Returns how many tensors of the bucket are not ready.
  [[nodiscard]] std::uint32_t missing(std::size_t bucket) const { return buckets_[bucket].missing; }
  /// Whether there are buckets and all of them have all their tensors.
  [[nodiscard]] bool whole() const noexcept { return !buckets_.empty() && whole_ == buckets_.size(); }
  [[nodiscard]] bool before_first_bucket() const noexcept { return next_ == 0; }
  [[nodiscard]] bool next_is_whole() const { return next_ < buckets_.size() && buckets_[next_].missing == 0; }
  [[nodiscard]] bool next_is_last() const noexcept { return next_ + 1 == buckets_.size(); }
  [[nodiscard]] bool under_way() const noexcept { return ended_ < next_; }
  [[nodiscard]] bool under_way(std::uint32_t bucket) const { return bucket < next_ && !buckets_[bucket].ended; }
  [[nodiscard]] bool has_ended(std::uint32_t bucket) const {
    return bucket < buckets_.size() && buckets_[bucket].ended;
  }
  [[nodiscard]] bool all_ended() const noexcept { return ended_ == buckets_.size(); }
  /// Returns how many buckets have ended, which over a device means that they are enqueued.
  [[nodiscard]] std::size_t ended() const noexcept { return ended_; }

 private:
  struct Tensor {
    std::uint32_t bucket = 0;
    bool ready = false;
    std::uint32_t micro_steps = 0;  // not counting the last one
  };
  struct Bucket {
    std::uint32_t tensors = 0;
    std::uint32_t missing = 0;  // tensors that are not ready
    bool ended = false;
  };

  std::vector<Tensor> tensors_;
  std::vector<Bucket> buckets_;
  std::size_t ready_ = 0;  // tensors that are ready
  std::size_t whole_ = 0;  // buckets whose tensors are all ready
  std::size_t next_ = 0;   // the first bucket that has not started
  std::size_t ended_ = 0;  // buckets that have ended
};

}  // namespace gradwire::session
