// The residuals on a device: two arrays for each bucket, one for each encode site, in the order of the bucket's
// elements; where a library sums inside nodes, a third one for what this rank sums there and for what it owns of that.
// exchange::resolve() decides which call keeps residuals and which adds them, and the stream executor does it. On the
// host, residuals are stored by tensor, as in files.
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
  explicit DeviceResiduals(exchange::StreamDevice& device) : device_(device) {}

  struct Ranges {
    exchange::DeviceRange<float> local = {};
    exchange::DeviceRange<float> owner = {};
    exchange::DeviceRange<float> node = {};  // see StreamTask::node_residual
  };
  /// How one call uses the residuals of a bucket.
  struct Use {
    exchange::ResidualUse call = {};
    Ranges ranges = {};
  };

  /// Returns which residuals of a bucket any rank may hold; with `later`, which it may hold before a later step, for
  /// which room was made.
  [[nodiscard]] exchange::HeldResiduals held(std::uint32_t bucket, bool later = false) const;
  /// Before the call: makes room for the residuals that its encoders keep. New residuals are zero.
  [[nodiscard]] Use begin(std::uint32_t bucket, const exchange::ResidualUse& call);
  /// Makes room for the residuals that such a call keeps, so that begin() takes no memory. No residuals are held
  /// afterwards that were not held before.
  [[nodiscard]] Use reserve(std::uint32_t bucket, const exchange::ResidualUse& call);
  /// Sets the reserved room to zero where no residuals are held, for begin() in a capture.
  void clear_room();
  /// Between begin() and the call: multiplies the residuals of the bucket by `factor`.
  void decay(std::uint32_t bucket, double factor);
  /// Once the call is completely enqueued: frees the residuals that it has added.
  void end(exchange::StreamBackend& backend, std::uint32_t bucket, const Use& use);

  // For steps that can be undone: the residuals of a bucket are copied before a step changes them.
  /// Copies residuals before their changes from here on.
  void remember() noexcept { remembers_ = true; }
  void commit();
  void undo();

  /// Whose memory is freed when its residuals are added.
  enum class Frees : std::uint8_t { all, none, none_for_ever };
  /// Under `none` only load() frees memory; under `none_for_ever` nothing does, since a captured step may use it.
  void set_frees(Frees frees) noexcept { frees_ = frees; }
  [[nodiscard]] Frees frees() const noexcept { return frees_; }
  /// The memory of each bucket, and the way back to it: what was reserved since is released.
  [[nodiscard]] std::vector<Ranges> room() const;
  void go_back_to(const std::vector<Ranges>& room);

  [[nodiscard]] bool empty() const noexcept;
  [[nodiscard]] std::uint64_t bytes() const noexcept;
  void scale(float factor);

  // Block until the device has done the work on residuals.
  [[nodiscard]] std::vector<SavedResidual> save(const plan::Plan& plan, std::chrono::milliseconds timeout);
  void load(exchange::ResidualStore residuals, const plan::Plan& plan);

 private:
  struct OfBucket {
    bool held = false;   // the same on every rank
    bool moved = false;  // owner residuals may belong to elements of other ranks
    Ranges ranges = {};
    std::vector<exchange::ResidualUse::Part> parts = {};  // where ranges.node holds them, one behind the other
  };
  void scale(const OfBucket& now, double factor);
  void make_room(std::uint32_t bucket, const exchange::ResidualUse& call, bool clears);
  OfBucket& of_bucket(std::uint32_t bucket);
  void copy_for_undo(std::uint32_t bucket);
  void drop(exchange::StreamBackend& backend, exchange::DeviceRange<float>& range) const;
  void drop(exchange::StreamBackend& backend, Ranges& ranges) const;
  void save_site(const plan::Bucket& bucket, codec::EncodeSite site, const exchange::DeviceRange<float>& range,
                 std::chrono::milliseconds timeout, std::vector<SavedResidual>& saved);
  void save_parts(const plan::Bucket& bucket, const OfBucket& now, std::chrono::milliseconds timeout,
                  std::vector<SavedResidual>& saved);
  void take_parts(const plan::Bucket& bucket, const plan::Plan& plan, OfBucket& now, std::vector<float>& summed,
                  std::vector<float>& owner);
  void load_bucket(exchange::ResidualStore& residuals, const plan::Bucket& bucket, const plan::Plan& plan);
  void upload(exchange::DeviceRange<float>& range, const std::vector<float>& values, std::uint64_t first);

  exchange::StreamDevice& device_;
  std::vector<OfBucket> buckets_;                  // by bucket
  std::map<std::uint32_t, OfBucket> before_ = {};  // buckets that the step has changed, as they were before it
  bool remembers_ = false;
  Frees frees_ = Frees::all;
  bool captured_ = false;  // a captured step keeps residuals
};

}  // namespace gradwire::session
