#include "exchange/residuals/bucket_residuals.hpp"

#include <algorithm>
#include <utility>

namespace gradwire::exchange {

using codec::EncodeSite;

namespace {

ResidualKey key_of(const BucketPart& part, EncodeSite site) { return {static_cast<std::uint32_t>(part.tensor), site}; }

}  // namespace

BucketResiduals::BucketResiduals(ResidualStore& store, std::vector<BucketPart> parts, double decay, std::uint64_t step)
    : store_(store), parts_(std::move(parts)), decay_(static_cast<float>(decay)), step_(step) {
  std::erase_if(parts_, [](const BucketPart& part) { return part.count == 0; });
}

template <class Body>
void BucketResiduals::for_each_piece(std::uint64_t first, std::uint64_t count, Body body) const {
  auto part = std::upper_bound(parts_.begin(), parts_.end(), first,
                               [](std::uint64_t element, const BucketPart& p) { return element < p.offset; });
  part -= part == parts_.begin() ? 0 : 1;
  for (std::uint64_t done = 0; done < count && part != parts_.end(); ++part) {
    const std::uint64_t inside = first + done - part->offset;
    const std::uint64_t taken = std::min(count - done, part->count - inside);
    body(*part, inside, done, taken);
    done += taken;
  }
}

void BucketResiduals::begin(const ResidualUse& use) {
  if (!use.keeps.any()) {
    return;
  }
  const auto keep = [this](EncodeSite site, const ResidualUse::Range& range) {
    for_each_piece(range.first, range.count,
                   [&](const BucketPart& part, std::uint64_t inside, std::uint64_t, std::uint64_t count) {
                     store_.keep(key_of(part, site), inside, count, part.offset + inside);
                   });
  };
  for (const BucketPart& part : parts_) {
    store_.keep(key_of(part, EncodeSite::local), 0, 0);  // so that held() answers the same on every rank
  }
  keep(EncodeSite::local, use.local);
  for (const ResidualUse::Range& range : use.summed) {
    keep(EncodeSite::intra, range);
  }
  keep(EncodeSite::owner, use.owned);
}

void BucketResiduals::end(const ResidualUse& use) {
  for (const BucketPart& part : parts_) {
    if (!use.keeps.any()) {
      store_.drop(key_of(part, EncodeSite::local));
    }
    if (!use.keeps.intra) {
      store_.drop(key_of(part, EncodeSite::intra));
    }
    if (!use.keeps.owner) {
      store_.drop(key_of(part, EncodeSite::owner));
    }
    store_.clear_moved(static_cast<std::uint32_t>(part.tensor));
  }
}

HeldResiduals BucketResiduals::held() const {
  HeldResiduals held;
  for (const BucketPart& part : parts_) {
    held.any = held.any || store_.has(key_of(part, EncodeSite::local));
    held.moved = held.moved || store_.moved(static_cast<std::uint32_t>(part.tensor));
  }
  return held;
}

const float* BucketResiduals::load(EncodeSite site, std::uint64_t first, std::uint32_t count, float* scratch) const {
  const float* values = scratch;
  bool all = true;
  for_each_piece(first, count,
                 [&](const BucketPart& part, std::uint64_t inside, std::uint64_t done, std::uint64_t taken) {
                   const float* kept = store_.load(key_of(part, site), inside, taken, scratch + done);
                   all = all && kept != nullptr;
                   if (kept != nullptr && taken == count) {
                     values = kept;
                   } else if (kept != nullptr && kept != scratch + done) {
                     std::copy_n(kept, taken, scratch + done);
                   }
                 });
  if (all && decay_ != 1) {
    codec::multiply(codec::Working::f32, values, static_cast<double>(decay_), scratch, count);
    values = scratch;
  }
  return all ? values : nullptr;
}

float* BucketResiduals::target(EncodeSite site, std::uint64_t first, std::uint32_t count, float* scratch) {
  float* values = scratch;
  for_each_piece(first, count,
                 [&](const BucketPart& part, std::uint64_t inside, std::uint64_t /*done*/, std::uint64_t taken) {
                   float* in_place = store_.slice(key_of(part, site), inside, taken);
                   if (in_place != nullptr && taken == count && !store_.can_undo()) {
                     values = in_place;
                   }
                 });
  return values;
}

void BucketResiduals::store(EncodeSite site, std::uint64_t first, std::uint32_t count, const float* values) {
  for_each_piece(first, count,
                 [&](const BucketPart& part, std::uint64_t inside, std::uint64_t done, std::uint64_t taken) {
                   store_.write(key_of(part, site), inside, taken, values + done, step_);
                 });
}

bool BucketResiduals::holds(EncodeSite site, std::uint64_t first, std::uint32_t count) const {
  bool any = false;
  for_each_piece(first, count, [&](const BucketPart& part, std::uint64_t inside, std::uint64_t, std::uint64_t taken) {
    any = any || store_.holds(key_of(part, site), inside, taken);
  });
  return any;
}

void BucketResiduals::fold(EncodeSite site, std::uint64_t first, std::uint32_t count, double factor,
                           codec::Working type, void* values) {
  const std::size_t element = type == codec::Working::f64 ? sizeof(double) : sizeof(float);
  for_each_piece(first, count,
                 [&](const BucketPart& part, std::uint64_t inside, std::uint64_t done, std::uint64_t taken) {
                   store_.fold(key_of(part, site), inside, taken, {.decay = decay_, .factor = factor}, type,
                               static_cast<std::byte*>(values) + done * element);
                 });
}

}  // namespace gradwire::exchange
