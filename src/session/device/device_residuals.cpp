#include "session/device/device_residuals.hpp"

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

#include "exchange/partition.hpp"
#include "exchange/resolved_call.hpp"

namespace gradwire::session {
namespace {

using codec::EncodeSite;
using exchange::DeviceRange;
using exchange::ResidualKey;
using exchange::ResidualStore;

ResidualKey key_of(const exchange::BucketPart& part, EncodeSite site) {
  return {static_cast<std::uint32_t>(part.tensor), site};
}

exchange::Partition shards_of(const plan::Plan& plan, const plan::Bucket& bucket, int world_size) {
  const codec::Codec any(bucket.codec, DType::f32);  // shards do not depend on the codec
  return exchange::Partition::even(bucket.count, world_size, any, plan.host_chunk_bytes());
}

std::span<const std::byte> bytes_of(const std::vector<float>& values) { return std::as_bytes(std::span(values)); }

}  // namespace

DeviceResiduals::OfBucket& DeviceResiduals::of_bucket(std::uint32_t bucket) {
  buckets_.resize(std::max<std::size_t>(buckets_.size(), bucket + std::size_t{1}));
  return buckets_[bucket];
}

exchange::HeldResiduals DeviceResiduals::held(std::uint32_t bucket, bool later) const {
  if (bucket >= buckets_.size()) {
    return {};
  }
  const OfBucket& now = buckets_[bucket];
  const bool room =
      now.ranges.local.data != nullptr || now.ranges.owner.data != nullptr || now.ranges.node.data != nullptr;
  return {now.held || (later && room), now.moved};
}

void DeviceResiduals::copy_for_undo(std::uint32_t bucket) {
  if (before_.contains(bucket)) {
    return;
  }
  const OfBucket& now = of_bucket(bucket);
  exchange::StreamBackend& backend = device_.backend();
  const auto copied = [&](DeviceRange<float> range) {
    if (range.data != nullptr) {
      const std::size_t bytes = range.count * sizeof(float);
      auto* const made = reinterpret_cast<float*>(backend.acquire(bytes));
      backend.copy(made, range.data, bytes);
      range.data = made;
    }
    return range;
  };
  OfBucket before{.held = now.held, .moved = now.moved, .ranges = {}, .parts = now.parts};
  try {
    before.ranges.local = copied(now.ranges.local);
    before.ranges.owner = copied(now.ranges.owner);
    before.ranges.node = copied(now.ranges.node);
  } catch (...) {
    drop(backend, before.ranges);
    throw;
  }
  before_.emplace(bucket, before);
}

void DeviceResiduals::commit() {
  for (auto& [bucket, before] : before_) {
    drop(device_.backend(), before.ranges);
  }
  before_.clear();
}

void DeviceResiduals::undo() {
  for (auto& [bucket, before] : before_) {
    OfBucket& now = of_bucket(bucket);
    drop(device_.backend(), now.ranges);
    now = before;
  }
  before_.clear();
}

DeviceResiduals::Use DeviceResiduals::begin(std::uint32_t bucket, const exchange::ResidualUse& call) {
  if (remembers_) {
    copy_for_undo(bucket);
  }
  if (!call.any) {
    return {};
  }
  captured_ = captured_ || (device_.capturing() && call.keeps.any());
  make_room(bucket, call, !device_.capturing());
  OfBucket& now = of_bucket(bucket);
  now.held = true;
  return {call, now.ranges};
}

DeviceResiduals::Use DeviceResiduals::reserve(std::uint32_t bucket, const exchange::ResidualUse& call) {
  if (!call.any) {
    return {};
  }
  make_room(bucket, call, false);
  return {call, of_bucket(bucket).ranges};
}

// Room in which nothing is held is zero in a capture: clear_room() or the step that added the residuals has seen to it.
void DeviceResiduals::make_room(std::uint32_t bucket, const exchange::ResidualUse& call, bool clears) {
  OfBucket& now = of_bucket(bucket);
  const auto make = [&](DeviceRange<float>& range, std::uint64_t first, std::uint64_t count) {
    const bool there = range.data != nullptr && range.first <= first && first + count <= range.first + range.count;
    if (count == 0 || (there && (now.held || !clears))) {
      return;
    }
    if (device_.capturing()) {
      throw Error(ErrorCode::invalid_argument, "bucket " + std::to_string(bucket) +
                                                   " has no residuals yet, which a step that is being captured "
                                                   "cannot make; call reserve() on every rank before the "
                                                   "capture begins");
    }
    if (range.data == nullptr) {
      range = {reinterpret_cast<float*>(device_.arena().acquire_lasting(count * sizeof(float))), first, count};
    }
    if (clears || now.held) {
      device_.zero(range.data, range.count * sizeof(float));
    }
  };
  make(now.ranges.local, call.local.first, call.local.count);
  make(now.ranges.owner, call.owned.first, call.owned.count);
  if (!call.parts.empty()) {
    make(now.ranges.node, 0, exchange::elements_of(call.parts));
    now.parts = call.parts;
  }
}

void DeviceResiduals::clear_room() {
  for (const OfBucket& now : buckets_) {
    for (const DeviceRange<float>& range : {now.ranges.local, now.ranges.owner, now.ranges.node}) {
      if (!now.held && range.data != nullptr) {
        device_.zero(range.data, range.count * sizeof(float));
      }
    }
  }
}

std::vector<DeviceResiduals::Ranges> DeviceResiduals::room() const {
  std::vector<Ranges> room;
  for (const OfBucket& now : buckets_) {
    room.push_back(now.ranges);
  }
  return room;
}

void DeviceResiduals::go_back_to(const std::vector<Ranges>& room) {
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    const Ranges before = i < room.size() ? room[i] : Ranges{};
    const auto go_back = [&](DeviceRange<float>& now, const DeviceRange<float>& then) {
      if (now.data != then.data) {
        device_.arena().release(reinterpret_cast<std::byte*>(std::exchange(now, then).data));
      }
    };
    go_back(buckets_[i].ranges.local, before.local);
    go_back(buckets_[i].ranges.owner, before.owner);
    go_back(buckets_[i].ranges.node, before.node);
  }
}

void DeviceResiduals::drop(exchange::StreamBackend& backend, DeviceRange<float>& range) const {
  if (frees_ == Frees::all && range.data != nullptr) {
    backend.release(reinterpret_cast<std::byte*>(range.data));
    range = {};
  }
}

void DeviceResiduals::drop(exchange::StreamBackend& backend, Ranges& ranges) const {
  drop(backend, ranges.local);
  drop(backend, ranges.owner);
  drop(backend, ranges.node);
}

void DeviceResiduals::end(exchange::StreamBackend& backend, std::uint32_t bucket, const Use& use) {
  if (!use.call.any) {
    return;
  }
  OfBucket& now = of_bucket(bucket);
  now.moved = false;
  if (!use.call.keeps.any()) {
    drop(backend, now.ranges.local);
    drop(backend, now.ranges.node);
    now.held = captured_ || device_.capturing();  // replays may keep residuals again, and a capture adds none yet
  }
  if (!use.call.parts.empty()) {
    drop(backend, now.ranges.local);
  }
  if (!use.call.keeps.owner) {
    drop(backend, now.ranges.owner);
  } else if (frees_ == Frees::all && now.ranges.owner.count > use.call.owned.count) {
    // The range was loaded under another plan and covered the whole bucket; all of it but this rank's own part is zero
    // by now.
    DeviceRange<float> own{nullptr, use.call.owned.first, use.call.owned.count};
    if (own.count > 0) {
      own.data = reinterpret_cast<float*>(backend.acquire(own.count * sizeof(float)));
      backend.copy(own.data, now.ranges.owner.data + (own.first - now.ranges.owner.first), own.count * sizeof(float));
    }
    drop(backend, now.ranges.owner);
    now.ranges.owner = own;
  }
}

bool DeviceResiduals::empty() const noexcept {
  return std::none_of(buckets_.begin(), buckets_.end(), [](const OfBucket& now) { return now.held; });
}

std::uint64_t DeviceResiduals::bytes() const noexcept {
  std::uint64_t elements = 0;
  for (const OfBucket& now : buckets_) {
    elements += now.held ? now.ranges.local.count + now.ranges.owner.count + now.ranges.node.count : 0;
  }
  return elements * sizeof(float);
}

void DeviceResiduals::scale(const OfBucket& now, double factor) {
  for (const DeviceRange<float>& range : {now.ranges.local, now.ranges.owner, now.ranges.node}) {
    if (now.held && range.data != nullptr) {
      device_.backend().convert(range.data, DType::f32, range.data, DType::f32, range.count, factor, nullptr, 1.0,
                                nullptr);
    }
  }
}

void DeviceResiduals::decay(std::uint32_t bucket, double factor) {
  if (factor != 1 && bucket < buckets_.size()) {
    scale(buckets_[bucket], factor);
  }
}

void DeviceResiduals::scale(float factor) {
  for (const OfBucket& now : buckets_) {
    scale(now, static_cast<double>(factor));
  }
}

void DeviceResiduals::save_site(const plan::Bucket& bucket, EncodeSite site, const DeviceRange<float>& range,
                                std::chrono::milliseconds timeout, std::vector<SavedResidual>& saved) {
  std::vector<float> values(range.count);
  if (range.count > 0) {
    device_.download(std::as_writable_bytes(std::span(values)), range.data, timeout);
  }
  for (const exchange::BucketPart& part : bucket.parts) {
    const std::uint64_t begin = std::max(part.offset, range.first);
    const std::uint64_t end = std::min(part.offset + part.count, range.first + range.count);
    if (begin < end) {
      const std::span<const float> of_part = std::span(values).subspan(begin - range.first, end - begin);
      saved.push_back({key_of(part, site), {begin - part.offset, exchange::ResidualStore::Values(of_part)}});
    } else if (site == EncodeSite::local && part.count > 0) {
      saved.push_back({key_of(part, site), {}});  // the empty entry counts: see exchange::BucketResiduals::held
    }
  }
}

// Of each part the elements that this rank owns are those of an owner, the others those of a node's sum.
void DeviceResiduals::save_parts(const plan::Bucket& bucket, const OfBucket& now, std::chrono::milliseconds timeout,
                                 std::vector<SavedResidual>& saved) {
  if (now.ranges.node.data == nullptr) {
    return;
  }
  std::uint64_t before = 0;
  for (const exchange::ResidualUse::Part& part : now.parts) {
    const std::uint64_t end = part.summed.first + part.summed.count;
    const std::uint64_t own_end = part.owned.first + part.owned.count;
    const auto piece = [&](EncodeSite site, std::uint64_t first, std::uint64_t past) {
      if (first < past) {
        save_site(bucket, site, {now.ranges.node.data + before + (first - part.summed.first), first, past - first},
                  timeout, saved);
      }
    };
    piece(EncodeSite::intra, part.summed.first, part.owned.first);
    piece(EncodeSite::owner, part.owned.first, own_end);
    piece(EncodeSite::intra, own_end, end);
    before += part.summed.count;
  }
}

std::vector<SavedResidual> DeviceResiduals::save(const plan::Plan& plan, std::chrono::milliseconds timeout) {
  std::vector<SavedResidual> saved;
  for (const plan::Bucket& bucket : plan.buckets) {
    if (bucket.id < buckets_.size() && buckets_[bucket.id].held) {
      save_site(bucket, EncodeSite::local, buckets_[bucket.id].ranges.local, timeout, saved);
      save_site(bucket, EncodeSite::owner, buckets_[bucket.id].ranges.owner, timeout, saved);
      save_parts(bucket, buckets_[bucket.id], timeout, saved);
    }
  }
  std::sort(saved.begin(), saved.end(), [](const SavedResidual& a, const SavedResidual& b) {
    return std::tie(a.key, a.range.offset) < std::tie(b.key, b.range.offset);
  });
  return saved;
}

void DeviceResiduals::upload(DeviceRange<float>& range, const std::vector<float>& values, std::uint64_t first) {
  range = {reinterpret_cast<float*>(device_.backend().acquire(values.size() * sizeof(float))), first, values.size()};
  device_.upload(range.data, bytes_of(values));
}

// Moves what this rank sums or owns in a bucket of nodes' sums to its place there.
void DeviceResiduals::take_parts(const plan::Bucket& bucket, const plan::Plan& plan, OfBucket& now,
                                 std::vector<float>& summed, std::vector<float>& owner) {
  now.parts =
      exchange::parts_of(bucket.count, exchange::stream_chunks(device_.backend().world_size(), plan.chunk_bytes),
                         {device_.backend().rank(), device_.backend().world_size(), plan.tiers});
  std::vector<float> node;
  for (const exchange::ResidualUse::Part& part : now.parts) {
    for (std::uint64_t i = part.summed.first; i < part.summed.first + part.summed.count; ++i) {
      const bool own = i >= part.owned.first && i < part.owned.first + part.owned.count;
      node.push_back(std::exchange((own ? owner : summed)[i], 0.0F));
    }
  }
  if (now.held && !node.empty()) {
    upload(now.ranges.node, node, 0);
  }
}

void DeviceResiduals::load_bucket(ResidualStore& residuals, const plan::Bucket& bucket, const plan::Plan& plan) {
  const auto shards = shards_of(plan, bucket, device_.backend().world_size());
  const std::uint64_t owned_first = shards.shard_first(device_.backend().rank());
  const std::uint64_t owned_end = owned_first + shards.shard_count(device_.backend().rank());
  std::vector<float> local(bucket.count);
  std::vector<float> owner(bucket.count);
  const bool by_library = plan.by_library(bucket);
  std::vector<float> summed(by_library ? bucket.count : 0);
  bool any_local = false;
  bool any_owner = false;
  bool all_owned = true;
  OfBucket& now = of_bucket(bucket.id);
  for (const exchange::BucketPart& part : bucket.parts) {
    now.held = now.held || residuals.has(key_of(part, EncodeSite::local));
    now.moved = now.moved || residuals.moved(static_cast<std::uint32_t>(part.tensor));
    // Residuals of sums within nodes are in the same units as local ones. Where the device sums none, they are added to
    // the local ones.
    for (const EncodeSite site : {EncodeSite::local, EncodeSite::intra, EncodeSite::owner}) {
      const auto found = residuals.entries().find(key_of(part, site));
      if (found == residuals.entries().end()) {
        continue;
      }
      for (const ResidualStore::Range& range : found->second) {
        const std::uint64_t first = part.offset + range.offset;
        const bool owned = site == EncodeSite::owner;
        std::vector<float>& to = owned ? owner : by_library && site == EncodeSite::intra ? summed : local;
        const auto begin = to.begin() + static_cast<std::ptrdiff_t>(first);
        std::vector<float> room(range.values.size());
        const float* values = range.values.look(0, range.values.size(), room.data());
        std::transform(values, values + range.values.size(), begin, begin, std::plus<>());
        const bool any = !range.values.empty();
        any_local = any_local || (any && !owned);
        any_owner = any_owner || (any && owned);
        all_owned = all_owned && (!owned || !any || (first >= owned_first && first + range.values.size() <= owned_end));
      }
    }
  }
  if (by_library) {
    take_parts(bucket, plan, now, summed, owner);
    const auto any = [](const std::vector<float>& values) {
      return std::any_of(values.begin(), values.end(), [](float x) { return x != 0; });
    };
    now.moved = now.moved || now.held;  // the rank that owns an element depends on nodes
    any_owner = any(owner);
    any_local = any(local) || any(summed);
    all_owned = false;
    std::transform(local.begin(), local.end(), summed.begin(), local.begin(), std::plus<>());
  }
  if (any_local) {
    upload(now.ranges.local, local, 0);
  }
  if (any_owner && all_owned) {
    upload(now.ranges.owner,
           {owner.begin() + static_cast<std::ptrdiff_t>(owned_first),
            owner.begin() + static_cast<std::ptrdiff_t>(owned_end)},
           owned_first);
  } else if (any_owner) {
    upload(now.ranges.owner, owner, 0);
  }
}

void DeviceResiduals::load(ResidualStore residuals, const plan::Plan& plan) {
  if (frees_ == Frees::none_for_ever) {
    throw Error(ErrorCode::invalid_argument,
                "load: memory was reserved, and a captured step may use its residuals; load before reserve()");
  }
  frees_ = Frees::all;
  for (OfBucket& now : buckets_) {
    drop(device_.backend(), now.ranges);
    now = {};
  }
  for (const plan::Bucket& bucket : plan.buckets) {
    load_bucket(residuals, bucket, plan);
  }
}

}  // namespace gradwire::session
