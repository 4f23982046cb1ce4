#include "exchange/residuals/residual_values.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "exchange/residuals/residual_blocks.hpp"
#include "kernels/philox.hpp"

namespace gradwire::exchange {
namespace {

// Positions count from the first element of the first block.
constexpr std::uint64_t block_of(std::uint64_t position) { return position / kResidualBlock; }

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

std::uint64_t residual_bytes_of(ResidualDType dtype, std::uint64_t count, std::uint32_t lead) noexcept {
  switch (dtype) {
    case ResidualDType::f32: return count * sizeof(float);
    case ResidualDType::bf16: return count * sizeof(std::uint16_t);
    case ResidualDType::int8: return count == 0 ? 0 : block_of(lead + count - 1) * kBlockBytes + kBlockBytes;
  }
  return 0;
}

ResidualValues::ResidualValues(std::uint64_t count, ResidualDType dtype, const Spill& spill, std::uint32_t lead)
    : dtype_(dtype), lead_(lead), count_(count) {
  const std::size_t bytes = residual_bytes_of(dtype, count, lead);
  if (spill != nullptr && bytes >= memory::kFileUnit) {
    spilled_ = memory::SpilledBytes(spill, bytes);
  } else {
    bytes_.resize(bytes);
  }
}

ResidualValues::ResidualValues(std::span<const float> values) : count_(values.size()), bytes_(std::as_bytes(values)) {}

bool ResidualValues::lies_in(const Spill& spill) const noexcept {
  return byte_count() < memory::kFileUnit || spilled_.cache() == spill;
}

float ResidualValues::operator[](std::uint64_t index) const {
  float value = 0;
  return *look(index, 1, &value);
}

float* ResidualValues::floats() noexcept {
  return dtype_ == ResidualDType::f32 && spilled_.empty() ? reinterpret_cast<float*>(bytes_.data()) : nullptr;
}

const float* ResidualValues::load(std::uint64_t first, std::uint64_t count, float* scratch) const {
  return read(first, count, scratch, true);
}

const float* ResidualValues::look(std::uint64_t first, std::uint64_t count, float* scratch) const {
  return read(first, count, scratch, false);
}

void ResidualValues::get_bytes(std::size_t first, std::span<std::byte> to, bool loads) const {
  if (spilled_.empty()) {
    std::copy_n(bytes_.data() + first, to.size(), to.data());
  } else {
    loads ? spilled_.load(first, to) : spilled_.look(first, to);
  }
}

void ResidualValues::put_bytes(std::size_t first, std::span<const std::byte> from) {
  if (spilled_.empty()) {
    std::copy(from.begin(), from.end(), bytes_.data() + first);
  } else {
    spilled_.store(first, from);
  }
}

void ResidualValues::set_bytes(std::size_t first, std::span<const std::byte> from) {
  if (spilled_.empty()) {
    std::copy(from.begin(), from.end(), bytes_.data() + first);
  } else {
    spilled_.replace(first, from);
  }
}

const float* ResidualValues::read(std::uint64_t first, std::uint64_t count, float* scratch, bool loads) const {
  switch (dtype_) {
    case ResidualDType::f32:
      if (spilled_.empty()) {
        return reinterpret_cast<const float*>(bytes_.data()) + first;
      }
      get_bytes(first * sizeof(float), std::as_writable_bytes(std::span(scratch, count)), loads);
      break;
    case ResidualDType::bf16:
      if (spilled_.empty()) {
        codec::widen_bf16(halves(bytes_.data()) + first, count, scratch);
        break;
      }
      for_each_piece(count, [&](std::span<std::uint16_t> room, std::uint64_t done) {
        get_bytes((first + done) * sizeof(std::uint16_t), std::as_writable_bytes(room), loads);
        codec::widen_bf16(room.data(), room.size(), scratch + done);
      });
      break;
    case ResidualDType::int8: read_blocks(first, count, scratch, loads); break;
  }
  return scratch;
}

void ResidualValues::store(std::uint64_t first, std::uint64_t count, const float* values,
                           const ResidualRounding& rounding, std::uint64_t index) {
  switch (dtype_) {
    case ResidualDType::f32: put_bytes(first * sizeof(float), std::as_bytes(std::span(values, count))); break;
    case ResidualDType::bf16:
      if (spilled_.empty()) {
        narrow(rounding, index, values, count, halves(bytes_.data()) + first);
        break;
      }
      for_each_piece(count, [&](std::span<std::uint16_t> room, std::uint64_t done) {
        narrow(rounding, index + done, values + done, room.size(), room.data());
        spilled_.store((first + done) * sizeof(std::uint16_t), std::as_bytes(room));
      });
      break;
    case ResidualDType::int8: store_blocks(first, count, values, rounding, index); break;
  }
}

void ResidualValues::copy_bytes(std::size_t first, std::size_t count, const ResidualValues& from,
                                std::size_t from_first) {
  if (!spilled_.empty() && !from.spilled_.empty()) {
    spilled_.copy(first, count, from.spilled_, from_first);
  } else if (!spilled_.empty()) {
    spilled_.replace(first, from.bytes().subspan(from_first, count));
  } else if (!from.spilled_.empty()) {
    from.spilled_.look(from_first, bytes().subspan(first, count));
  } else {
    std::copy_n(from.bytes_.data() + from_first, count, bytes_.data() + first);
  }
}

void ResidualValues::copy(std::uint64_t first, std::uint64_t count, const ResidualValues& from,
                          std::uint64_t from_first, const ResidualRounding& rounding, std::uint64_t index) {
  if (in_blocks()) {
    copy_blocks(first, count, from, from_first, rounding, index);
    return;
  }
  const std::size_t each = residual_bytes_of(dtype_, 1, 0);
  copy_bytes(first * each, count * each, from, from_first * each);
}

void ResidualValues::zero_bytes(std::size_t first, std::size_t count) {
  if (spilled_.empty()) {
    std::fill_n(bytes_.data() + first, count, std::byte{0});
  } else {
    spilled_.fill_zero(first, count);
  }
}

void ResidualValues::fill_zero(std::uint64_t first, std::uint64_t count) {
  if (!in_blocks()) {
    const std::size_t each = residual_bytes_of(dtype_, 1, 0);
    zero_bytes(first * each, count * each);
    return;
  }
  for_each_block(lead_ + first, count, [&](std::uint64_t at, std::uint64_t blocks, Slots slots) {
    slots.all() ? zero_bytes(at * kBlockBytes, blocks * kBlockBytes)
                : zero_bytes(at * kBlockBytes + 1 + slots.first, slots.count);
  });
}

bool ResidualValues::any_nonzero(std::uint64_t first, std::uint64_t count) const {
  bool found = false;
  std::byte room[kPieceBytes];
  // Looks at `some` bytes from `at` on.
  const auto any = [&](std::size_t at, std::size_t some, auto is_any) {
    if (!found && spilled_.empty()) {
      found = is_any(bytes_.data() + at);
    } else if (!found) {
      spilled_.look(at, std::span(room, some));
      found = is_any(static_cast<const std::byte*>(room));
    }
  };
  if (in_blocks()) {
    for_each_block(lead_ + first, count, [&](std::uint64_t at, std::uint64_t blocks, Slots slots) {
      for (std::uint64_t block = at; block < at + blocks && !found; ++block) {
        any(block * kBlockBytes + 1 + slots.first, slots.count, [&](const std::byte* values) {
          return std::any_of(values, values + slots.count, [](std::byte value) { return value != std::byte{0}; });
        });
      }
    });
    return found;
  }
  const std::size_t each = residual_bytes_of(dtype_, 1, 0);
  const std::uint64_t piece = spilled_.empty() ? count : kPieceBytes / each;
  for (std::uint64_t done = 0; done < count && !found; done += piece) {
    const std::uint64_t some = std::min<std::uint64_t>(piece, count - done);
    any((first + done) * each, some * each, [&](const std::byte* values) {
      return dtype_ == ResidualDType::f32 ? any_nonzero_bits<std::uint32_t>(values, some)
                                          : any_nonzero_bits<std::uint16_t>(values, some);
    });
  }
  return found;
}

ResidualValues ResidualValues::part(std::uint64_t first, std::uint64_t count) const {
  const std::uint32_t lead = in_blocks() ? static_cast<std::uint32_t>((lead_ + first) % kResidualBlock) : 0;
  ResidualValues part(count, dtype_, spilled_.cache(), lead);
  part.copy(0, count, *this, first, {}, 0);
  return part;
}

ResidualValues ResidualValues::as(ResidualDType dtype, const Spill& spill, const ResidualRounding& rounding,
                                  std::uint64_t index) const {
  if (dtype == dtype_) {
    ResidualValues other(size(), dtype, spill, lead_);
    other.copy(0, size(), *this, 0, rounding, index);
    return other;
  }
  ResidualValues other(size(), dtype, spill);
  constexpr std::uint64_t kPiece = 16 * kResidualBlock;
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
