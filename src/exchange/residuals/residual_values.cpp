#include "exchange/residuals/residual_values.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/philox.hpp"

namespace gradwire::exchange {
namespace {

std::uint16_t* halves(std::byte* bytes) { return reinterpret_cast<std::uint16_t*>(bytes); }
const std::uint16_t* halves(const std::byte* bytes) { return reinterpret_cast<const std::uint16_t*>(bytes); }

// Returns whether any of the values has other bits than the sign.
template <class Bits>
bool any_nonzero_bits(const std::byte* values, std::uint64_t count) {
  constexpr auto kValue = static_cast<Bits>(static_cast<Bits>(~Bits{0}) >> 1);
  for (std::uint64_t i = 0; i < count;) {
    const std::uint64_t end = std::min<std::uint64_t>(i + 64, count);
    Bits bits = 0;
    for (; i < end; ++i) {
      Bits one = 0;
      std::memcpy(&one, values + i * sizeof one, sizeof one);
      bits = static_cast<Bits>(bits | one);
    }
    if ((bits & kValue) != 0) {
      return true;
    }
  }
  return false;
}

void widen(const std::uint16_t* from, std::uint64_t count, float* to) {
  for (std::uint64_t i = 0; i < count; ++i) {
    to[i] = kernels::from_bf16(from[i]);
  }
}

// Rounds f32 values; `index` is that of the first one in its tensor.
void narrow(const ResidualRounding& rounding, std::uint64_t index, const float* from, std::uint64_t count,
            std::uint16_t* to) {
  for (std::uint64_t i = 0; i < count;) {  // once, but for the elements around a multiple of 2^32
    const auto low = static_cast<std::uint32_t>(index + i);
    const std::uint64_t end = std::min(count, i + ((std::uint64_t{1} << 32) - low));
    const kernels::RoundingKey key = rounding.key(static_cast<std::uint32_t>((index + i) >> 32));
    codec::round_to_bf16(key, low, from + i, end - i, to + i);
    i = end;
  }
}

// Calls body(room, done) for `count` narrow values that pass through a small buffer, one piece after the other.
template <class Body>
void for_each_piece(std::uint64_t count, Body body) {
  std::uint16_t room[2048];
  for (std::uint64_t done = 0; done < count; done += std::size(room)) {
    body(std::span(room).first(std::min<std::uint64_t>(std::size(room), count - done)), done);
  }
}

}  // namespace

kernels::RoundingKey ResidualRounding::key(std::uint32_t index_high) const noexcept {
  const auto what = static_cast<std::uint32_t>(site) | static_cast<std::uint32_t>(use) << 4 | index_high << 8;
  const kernels::Philox random = kernels::philox(
      {{tensor, what, static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32)}}, seed, rank);
  return {{random.word[0], random.word[1]}};
}

ResidualValues::ResidualValues(std::uint64_t count, DType dtype, const Spill& spill) : dtype_(dtype) {
  const std::size_t bytes = count * element_bytes(dtype);
  if (spill != nullptr && bytes >= memory::kFileUnit) {
    spilled_ = memory::SpilledBytes(spill, bytes);
  } else {
    bytes_.resize(bytes);
  }
}

ResidualValues::ResidualValues(std::span<const float> values) : bytes_(std::as_bytes(values)) {}

bool ResidualValues::lies_in(const Spill& spill) const noexcept {
  return byte_count() < memory::kFileUnit || spilled_.cache() == spill;
}

float ResidualValues::operator[](std::uint64_t index) const {
  float value = 0;
  return *look(index, 1, &value);
}

float* ResidualValues::floats() noexcept {
  return dtype_ == DType::f32 && spilled_.empty() ? reinterpret_cast<float*>(bytes_.data()) : nullptr;
}

const float* ResidualValues::load(std::uint64_t first, std::uint64_t count, float* scratch) const {
  return read(first, count, scratch, true);
}

const float* ResidualValues::look(std::uint64_t first, std::uint64_t count, float* scratch) const {
  return read(first, count, scratch, false);
}

const float* ResidualValues::read(std::uint64_t first, std::uint64_t count, float* scratch, bool loads) const {
  const auto fetch = [&](std::uint64_t from, std::span<std::byte> to) {
    const std::size_t begin = from * element_bytes(dtype_);
    loads ? spilled_.load(begin, to) : spilled_.look(begin, to);
  };
  if (dtype_ == DType::f32) {
    if (spilled_.empty()) {
      return reinterpret_cast<const float*>(bytes_.data()) + first;
    }
    fetch(first, std::as_writable_bytes(std::span(scratch, count)));
  } else if (spilled_.empty()) {
    widen(halves(bytes_.data()) + first, count, scratch);
  } else {
    for_each_piece(count, [&](std::span<std::uint16_t> room, std::uint64_t done) {
      fetch(first + done, std::as_writable_bytes(room));
      widen(room.data(), room.size(), scratch + done);
    });
  }
  return scratch;
}

void ResidualValues::store(std::uint64_t first, std::uint64_t count, const float* values,
                           const ResidualRounding& rounding, std::uint64_t index) {
  if (dtype_ == DType::f32) {
    if (spilled_.empty()) {
      std::copy_n(values, count, floats() + first);
    } else {
      spilled_.store(first * sizeof(float), std::as_bytes(std::span(values, count)));
    }
  } else if (spilled_.empty()) {
    narrow(rounding, index, values, count, halves(bytes_.data()) + first);
  } else {
    for_each_piece(count, [&](std::span<std::uint16_t> room, std::uint64_t done) {
      narrow(rounding, index + done, values + done, room.size(), room.data());
      spilled_.store((first + done) * sizeof(std::uint16_t), std::as_bytes(room));
    });
  }
}

void ResidualValues::copy(std::uint64_t first, std::uint64_t count, const ResidualValues& from,
                          std::uint64_t from_first) {
  const std::size_t each = element_bytes(dtype_);
  if (!spilled_.empty() && !from.spilled_.empty()) {
    spilled_.copy(first * each, count * each, from.spilled_, from_first * each);
  } else if (!spilled_.empty()) {
    spilled_.replace(first * each, from.bytes().subspan(from_first * each, count * each));
  } else if (!from.spilled_.empty()) {
    from.spilled_.look(from_first * each, bytes().subspan(first * each, count * each));
  } else {
    std::copy_n(from.bytes_.data() + from_first * each, count * each, bytes_.data() + first * each);
  }
}

void ResidualValues::fill_zero(std::uint64_t first, std::uint64_t count) {
  const std::size_t each = element_bytes(dtype_);
  if (!spilled_.empty()) {
    spilled_.fill_zero(first * each, count * each);
  } else {
    std::fill_n(bytes_.data() + first * each, count * each, std::byte{0});
  }
}

bool ResidualValues::any_nonzero(std::uint64_t first, std::uint64_t count) const {
  const std::size_t each = element_bytes(dtype_);
  const auto any = [&](const std::byte* values, std::uint64_t some) {
    return dtype_ == DType::f32 ? any_nonzero_bits<std::uint32_t>(values, some)
                                : any_nonzero_bits<std::uint16_t>(values, some);
  };
  if (spilled_.empty()) {
    return any(bytes_.data() + first * each, count);
  }
  std::byte room[kPieceBytes];
  bool found = false;
  for (std::uint64_t done = 0; done < count && !found; done += kPieceBytes / each) {
    const std::uint64_t some = std::min<std::uint64_t>(kPieceBytes / each, count - done);
    spilled_.look((first + done) * each, std::span(room, some * each));
    found = any(room, some);
  }
  return found;
}

ResidualValues ResidualValues::part(std::uint64_t first, std::uint64_t count) const {
  ResidualValues part(count, dtype_, spilled_.cache());
  part.copy(0, count, *this, first);
  return part;
}

ResidualValues ResidualValues::as(DType dtype, const Spill& spill, const ResidualRounding& rounding,
                                  std::uint64_t index) const {
  ResidualValues other(size(), dtype, spill);
  if (dtype == dtype_) {
    other.copy(0, size(), *this, 0);
    return other;
  }
  constexpr std::uint64_t kPiece = 1024;
  float room[kPiece];
  for (std::uint64_t done = 0; done < size(); done += kPiece) {
    const std::uint64_t some = std::min(kPiece, size() - done);
    other.store(done, some, look(done, some, room), rounding, index + done);
  }
  return other;
}

bool operator==(const ResidualValues& a, const ResidualValues& b) {
  if (a.size() != b.size()) {
    return false;
  }
  for (std::uint64_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i]) {
      return false;
    }
  }
  return true;
}

}  // namespace gradwire::exchange
