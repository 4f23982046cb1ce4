// Changes of a shard's rows: at once, or when a row has come from the file.
#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "table/shard.hpp"

namespace gradwire::table {
namespace {

void apply_sgd(float rate, std::uint32_t width, const float* gradient, float* values) {
  for (std::uint32_t i = 0; i < width; ++i) {
    values[i] -= rate * gradient[i];
  }
}

void apply_adagrad(float rate, float epsilon, std::uint32_t width, const float* gradient, float* values, float* sums) {
  for (std::uint32_t i = 0; i < width; ++i) {
    sums[i] += gradient[i] * gradient[i];
    values[i] -= rate * gradient[i] / (std::sqrt(sums[i]) + epsilon);
  }
}

bool all_finite(const float* values, std::uint32_t width) {
  constexpr std::uint32_t kExponent = 0x7F800000;
  std::uint32_t others = 0;  // not bool, for which g++ 12 does not vectorize the loop
  for (std::uint32_t i = 0; i < width; ++i) {
    others |= (std::bit_cast<std::uint32_t>(values[i]) & kExponent) == kExponent ? 1U : 0U;
  }
  return others == 0;
}

}  // namespace

void Shard::note_change(const Slot& slot, std::uint64_t sequence) noexcept {
  const bool finite = all_finite(slot.values, settings_.width) &&
                      (slot.accumulators == nullptr || all_finite(slot.accumulators, settings_.width));
  bool was_finite = false;
  if (slot.hot != nullptr) {
    was_finite = !slot.hot->nonfinite;
    slot.hot->version = sequence;
    slot.hot->nonfinite = !finite;
  } else {
    const std::uint64_t bit = std::uint64_t{1} << slot.row;
    was_finite = (slot.page->nonfinite & bit) == 0;
    slot.page->versions[slot.row] = sequence;
    slot.page->nonfinite ^= finite != was_finite ? bit : 0;
  }
  if (finite != was_finite) {
    finite ? --nonfinite_rows_ : ++nonfinite_rows_;
  }
}

template <class Write>
void Shard::write_each(std::span<const std::uint64_t> ids, Write write) {
  for_each_batch(ids, [&](std::size_t first, std::size_t end, const RowFetch* fetch) {
    for (std::size_t i = first; i < end; ++i) {
      const Slot slot = writable(ids[i], fetch);
      write(i, slot);
      note_change(slot, sequence_);
    }
    tend();
  });
}

void Shard::apply_to(const Slot& row, const float* gradient) const noexcept {
  if (row.accumulators == nullptr) {
    apply_sgd(settings_.learning_rate, settings_.width, gradient, row.values);
  } else {
    apply_adagrad(settings_.learning_rate, settings_.epsilon, settings_.width, gradient, row.values, row.accumulators);
  }
}

void Shard::apply(std::span<const std::uint64_t> ids, const float* gradients) {
  settle(ids);
  ++sequence_;
  write_each(ids, [&](std::size_t i, const Slot& row) { apply_to(row, gradients + i * settings_.width); });
}

void Shard::assign(std::span<const std::uint64_t> ids, const float* values) {
  settle(ids);
  ++sequence_;
  write_each(ids, [&](std::size_t i, const Slot& row) {
    std::copy_n(values + i * settings_.width, settings_.width, row.values);
  });
}

void Shard::restore(const Row& row) {
  ++sequence_;
  write_each(std::span(&row.id, 1), [&](std::size_t /*i*/, const Slot& slot) {
    std::copy(row.values.begin(), row.values.end(), slot.values);
    if (slot.accumulators != nullptr) {
      std::copy(row.accumulators.begin(), row.accumulators.end(), slot.accumulators);
    }
  });
}

// Late pushes.

void Shard::apply_behind(std::span<const std::uint64_t> ids, const float* gradients) {
  if (!tier_) {
    apply(ids, gradients);
    return;
  }
  apply_arrived();
  ++sequence_;
  const std::size_t width = settings_.width;
  std::vector<std::uint64_t> late;
  std::vector<float> late_gradients;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const float* gradient = gradients + i * width;
    if (tier_->in_memory(ids[i]) && !late_rows_.contains(ids[i])) {
      const Slot slot = writable(ids[i]);
      apply_to(slot, gradient);
      note_change(slot, sequence_);
    } else {
      late.push_back(ids[i]);
      late_gradients.insert(late_gradients.end(), gradient, gradient + width);
    }
  }
  tend();
  for (std::size_t first = 0; first < late.size();) {
    while (late_.size() >= kMostLate) {
      apply_first_late();
    }
    TieredRows::Begun begun = tier_->begin(std::span(late).subspan(first));
    const auto at = [&](const auto& all, std::size_t i) { return all.begin() + static_cast<std::ptrdiff_t>(i); };
    const std::size_t end = first + begun.count;
    late_.push_back({.sequence = sequence_,
                     .ids = {at(late, first), at(late, end)},
                     .gradients = {at(late_gradients, first * width), at(late_gradients, end * width)},
                     .fetch = std::move(begun.fetch)});
    for (; first < end; ++first) {
      ++late_rows_[late[first]];
    }
  }
}

void Shard::apply_arrived() {
  while (!late_.empty() && (late_.front().fetch == nullptr || late_.front().fetch->done())) {
    apply_first_late();
  }
}

void Shard::apply_first_late() {
  const Late push = std::move(late_.front());
  late_.pop_front();
  if (push.fetch != nullptr) {
    push.fetch->wait();
  }
  for (std::size_t i = 0; i < push.ids.size(); ++i) {
    const auto pushes = late_rows_.find(push.ids[i]);
    if (--pushes->second == 0) {
      late_rows_.erase(pushes);
    }
    const Slot slot = writable(push.ids[i], push.fetch.get());
    apply_to(slot, push.gradients.data() + i * settings_.width);
    note_change(slot, push.sequence);
  }
  tend();
}

void Shard::settle(std::span<const std::uint64_t> ids) {
  for (std::size_t i = 0; i < ids.size() && !late_.empty();) {
    if (late_rows_.contains(ids[i])) {
      apply_first_late();
    } else {
      ++i;
    }
  }
}

}  // namespace gradwire::table
