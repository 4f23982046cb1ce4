// What error feedback keeps on a device: two arrays a bucket, in the order of its elements, by encode site. Which call
// keeps and which folds in what is exchange::resolve()'s rule; the stream executor does it. On the host they are by
// tensor, as files have them.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <vector>

#include "exchange/stream/stream_device.hpp"
#include "exchange/stream/stream_executor.hpp"
#include "plan/plan.hpp"
#include "session/state/state_file.hpp"

namespace gradwire::session {

class DeviceResiduals {
 public:
  DeviceResiduals(exchange::StreamDevice& device, int rank, int world_size)
      : device_(device), rank_(rank), world_size_(world_size) {}

  /// How one call uses those of a bucket.
  struct Use {
    exchange::ResidualUse call = {};
    exchange::DeviceRange<float> local = {};
    exchange::DeviceRange<float> owner = {};
  };

  /// What any rank may hold of a bucket.
  [[nodiscard]] exchange::HeldResiduals held(std::uint32_t bucket) const;
  /// Before the call: makes room for what its encoders keep, zero where nothing was.
  [[nodiscard]] Use begin(std::uint32_t bucket, const exchange::ResidualUse& call);
  /// Between begin() and the call: what was kept before counts so much of its worth.
  void decay(std::uint32_t bucket, double factor);
  /// Once all of the call is enqueued: gives back what it has folded in.
  void end(exchange::StreamBackend& backend, std::uint32_t bucket, const Use& use);

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
  void load(exchange::ResidualStore residuals, const plan::Plan& plan);

 private:
  struct OfBucket {
    bool held = false;   // on every rank or on none
    bool moved = false;  // owner residuals may be of elements that this rank does not own
    exchange::DeviceRange<float> local = {};
    exchange::DeviceRange<float> owner = {};
  };
  void scale(const OfBucket& now, double factor);
  OfBucket& of_bucket(std::uint32_t bucket);
  void copy_for_undo(std::uint32_t bucket);
  void drop(exchange::StreamBackend& backend, exchange::DeviceRange<float>& range) const;
  void save_site(const plan::Bucket& bucket, codec::EncodeSite site, const exchange::DeviceRange<float>& range,
                 std::chrono::milliseconds timeout, std::vector<SavedState::Residual>& saved);
  void load_bucket(exchange::ResidualStore& residuals, const plan::Bucket& bucket, const plan::Plan& plan);
  void upload(exchange::DeviceRange<float>& range, const std::vector<float>& values, std::uint64_t first);

  exchange::StreamDevice& device_;
  int rank_;
  int world_size_;
  std::vector<OfBucket> buckets_;                  // by bucket
  std::map<std::uint32_t, OfBucket> before_ = {};  // of those that the step has changed, before it
  bool remembers_ = false;
  bool keeps_memory_ = false;
  bool captured_ = false;  // a step was
};

}  // namespace gradwire::session
