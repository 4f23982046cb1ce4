// What error feedback keeps on a device: two arrays a bucket, in the order of its elements, by encode site. Which call
// keeps and which folds in what is collective::resolve()'s rule; the stream executor does it. On the host they are by
// tensor, as files have them.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <vector>

#include "collective/stream/stream_device.hpp"
#include "collective/stream/stream_executor.hpp"
#include "plan/plan.hpp"
#include "session/checkpoint/state_file.hpp"

namespace gradwire::session {

class DeviceResiduals {
 public:
  DeviceResiduals(collective::StreamDevice& device, int rank, int world_size)
      : device_(device), rank_(rank), world_size_(world_size) {}

  /// How one call uses those of a bucket.
  struct Use {
    collective::ResidualUse call = {};
    collective::DeviceRange<float> local = {};
    collective::DeviceRange<float> owner = {};
  };

  /// What any rank may hold of a bucket.
  [[nodiscard]] collective::HeldResiduals held(std::uint32_t bucket) const;
  /// Before the call: makes room for what its encoders keep, zero where nothing was.
  [[nodiscard]] Use begin(std::uint32_t bucket, const collective::ResidualUse& call);
  /// Between begin() and the call: what was kept before counts so much of its worth.
  void decay(std::uint32_t bucket, double factor);
  /// Once all of the call is enqueued: gives back what it has folded in.
  void end(collective::StreamBackend& backend, std::uint32_t bucket, const Use& use);

  // So that a step can be undone: what it changes of a bucket is copied before.
  /// From here on.
  void remember() noexcept { remembers_ = true; }
  void commit();
  void undo();

  /// From now on no memory is given back, since a captured step may name it.
  void keep_memory() noexcept { keeps_memory_ = true; }

  [[nodiscard]] bool empty() const noexcept;
  [[nodiscard]] std::uint64_t bytes() const noexcept;
  void scale(float factor);

  // Block until the device has done what it holds.
  [[nodiscard]] std::vector<SavedState::Residual> save(const plan::Plan& plan, std::chrono::milliseconds timeout);
  void load(plan::ResidualStore residuals, const plan::Plan& plan);

 private:
  struct OfBucket {
    bool held = false;   // on every rank or on none
    bool moved = false;  // owner residuals may be of elements that this rank does not own
    collective::DeviceRange<float> local = {};
    collective::DeviceRange<float> owner = {};
  };
  void scale(const OfBucket& now, double factor);
  OfBucket& of_bucket(std::uint32_t bucket);
  void copy_for_undo(std::uint32_t bucket);
  void drop(collective::StreamBackend& backend, collective::DeviceRange<float>& range) const;
  void save_site(const plan::Bucket& bucket, codec::EncodeSite site, const collective::DeviceRange<float>& range,
                 std::chrono::milliseconds timeout, std::vector<SavedState::Residual>& saved);
  void load_bucket(plan::ResidualStore& residuals, const plan::Bucket& bucket, const plan::Plan& plan);
  void upload(collective::DeviceRange<float>& range, const std::vector<float>& values, std::uint64_t first);

  collective::StreamDevice& device_;
  int rank_;
  int world_size_;
  std::vector<OfBucket> buckets_;                  // by bucket
  std::map<std::uint32_t, OfBucket> before_ = {};  // of those that the step has changed, before it
  bool remembers_ = false;
  bool keeps_memory_ = false;
  bool captured_ = false;  // a step was
};

}  // namespace gradwire::session
