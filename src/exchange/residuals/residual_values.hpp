// Residuals of consecutive elements of a tensor, kept as f32 or narrower, in memory or partly in a file. Encoders see
// them as f32 in any case. Values in int8 lie in blocks with a common scale; blocks begin where tiles of a bucket may
// begin, not where the tensor does, so that an encoder writes whole blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>

#include "codec/codec.hpp"
#include "gradwire/dtype.hpp"
#include "kernels/stochastic_int8.hpp"
#include "memory/paged_vector.hpp"
#include "memory/spill_cache.hpp"

namespace gradwire::exchange {

/// Chooses the random bits by which values are rounded where they are stored: a pure function of what it holds and of
/// the index of the element in its tensor. f32 needs none.
struct ResidualRounding {
  enum class Use : std::uint8_t { step, change, conversion };

  std::uint32_t seed = 0;
  std::uint32_t rank = 0;  // so that the errors of ranks are independent
  std::uint32_t tensor = 0;
  codec::EncodeSite site = codec::EncodeSite::none;
  Use use = Use::step;
  std::uint64_t number = 0;  // the step, or how many changes were made before

  /// Returns the key of the elements whose index has these upper 32 bits.
  [[nodiscard]] kernels::RoundingKey key(std::uint32_t index_high) const noexcept;
};

/// Elements of a block that has a common scale.
inline constexpr std::uint32_t kResidualBlock = kernels::StochasticInt8::kBlock;
/// Returns the bytes of `count` elements; `lead` as in ResidualValues.
[[nodiscard]] std::uint64_t residual_bytes_of(ResidualDType dtype, std::uint64_t count, std::uint32_t lead) noexcept;

/// Every function but a move may throw the errors of memory::PageFile if the values are spilled.
class ResidualValues {
 public:
  using Spill = std::shared_ptr<memory::SpillCache>;

  ResidualValues() = default;
  /// Holds `count` zeros at first. With `spill` they lie there, unless they take less than a page. `lead`, below
  /// kResidualBlock, is how many elements of the first block precede the first value; 0 if `dtype` has no blocks.
  explicit ResidualValues(std::uint64_t count, ResidualDType dtype = ResidualDType::f32, const Spill& spill = nullptr,
                          std::uint32_t lead = 0);
  explicit ResidualValues(std::span<const float> values);
  ResidualValues(std::initializer_list<float> values) : ResidualValues(std::span(values.begin(), values.size())) {}

  [[nodiscard]] ResidualDType dtype() const noexcept { return dtype_; }
  [[nodiscard]] std::uint64_t size() const noexcept { return count_; }
  [[nodiscard]] std::uint32_t lead() const noexcept { return lead_; }
  /// Returns whether [first, first + count) is a number of whole blocks, as far as they lie in these values.
  [[nodiscard]] bool whole_blocks(std::uint64_t first, std::uint64_t count) const noexcept;
  /// Returns whether a block would begin at the value `first` if one began `position` elements before it.
  [[nodiscard]] bool has_blocks_at(std::uint64_t first, std::uint64_t position) const noexcept {
    return !in_blocks() || (lead_ + first) % kResidualBlock == position % kResidualBlock;
  }
  [[nodiscard]] bool empty() const noexcept { return byte_count() == 0; }
  [[nodiscard]] std::size_t byte_count() const noexcept { return bytes_.size() + spilled_.size(); }
  /// Returns whether values of this size would lie where these do if they were made with `spill`.
  [[nodiscard]] bool lies_in(const Spill& spill) const noexcept;
  /// Returns the cache that these values lie in; null: in memory.
  [[nodiscard]] const Spill& spill() const noexcept { return spilled_.cache(); }
  /// Returns the values as they are stored; none where they are spilled.
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_.values(); }
  [[nodiscard]] std::span<std::byte> bytes() noexcept { return {bytes_.data(), bytes_.size()}; }
  /// Calls body(span of bytes) for all values as they are stored, one piece after the other.
  template <class Body>
  void for_each_bytes(Body body) const;
  /// Takes values as they are stored, from byte `first` on.
  void set_bytes(std::size_t first, std::span<const std::byte> from);
  [[nodiscard]] float operator[](std::uint64_t index) const;

  /// Returns the values themselves if they are f32 in memory; otherwise null.
  [[nodiscard]] float* floats() noexcept;
  /// Return values [first, first + count) as f32: in place, or written to `scratch`, which holds as many. A step loads
  /// each value once before it stores the new one; look() is for every other reader.
  [[nodiscard]] const float* load(std::uint64_t first, std::uint64_t count, float* scratch) const;
  [[nodiscard]] const float* look(std::uint64_t first, std::uint64_t count, float* scratch) const;
  /// Stores f32 values, rounded where the dtype asks for it. `index` is that of the first value in its tensor. Other
  /// values of a block that is stored in part are rounded again.
  void store(std::uint64_t first, std::uint64_t count, const float* values, const ResidualRounding& rounding,
             std::uint64_t index);
  /// Copies stored values of the same dtype. They are rounded again only where blocks begin elsewhere, or are copied
  /// in part; `index` is that of the first value in its tensor.
  void copy(std::uint64_t first, std::uint64_t count, const ResidualValues& from, std::uint64_t from_first,
            const ResidualRounding& rounding, std::uint64_t index);
  void fill_zero(std::uint64_t first, std::uint64_t count);
  [[nodiscard]] bool any_nonzero(std::uint64_t first, std::uint64_t count) const;
  /// values[i] = change(values[i], i) for all i, as f32.
  template <class Change>
  void change(std::uint64_t first, std::uint64_t count, const ResidualRounding& rounding, std::uint64_t index,
              Change change);

  [[nodiscard]] ResidualValues part(std::uint64_t first, std::uint64_t count) const;
  /// Returns the same values in another dtype, or in another place.
  [[nodiscard]] ResidualValues as(ResidualDType dtype, const Spill& spill, const ResidualRounding& rounding,
                                  std::uint64_t index) const;

  /// Returns the handle of their memory, for PagePool::compact(); an empty one where they are spilled.
  [[nodiscard]] memory::Block& block() noexcept { return bytes_.block(); }
  /// Compares the values, of any dtype.
  friend bool operator==(const ResidualValues& a, const ResidualValues& b);

 private:
  static constexpr std::size_t kPieceBytes = 4096;  // of spilled values that are read piece by piece
  [[nodiscard]] bool in_blocks() const noexcept { return dtype_ == ResidualDType::int8; }
  [[nodiscard]] const float* read(std::uint64_t first, std::uint64_t count, float* scratch, bool loads) const;
  void read_blocks(std::uint64_t first, std::uint64_t count, float* scratch, bool loads) const;
  void store_blocks(std::uint64_t first, std::uint64_t count, const float* values, const ResidualRounding& rounding,
                    std::uint64_t index);
  void copy_blocks(std::uint64_t first, std::uint64_t count, const ResidualValues& from, std::uint64_t from_first,
                   const ResidualRounding& rounding, std::uint64_t index);
  void copy_bytes(std::size_t first, std::size_t count, const ResidualValues& from, std::size_t from_first);
  void zero_bytes(std::size_t first, std::size_t count);
  void get_bytes(std::size_t first, std::span<std::byte> to, bool loads) const;
  void put_bytes(std::size_t first, std::span<const std::byte> from);

  ResidualDType dtype_ = ResidualDType::f32;
  std::uint32_t lead_ = 0;
  std::uint64_t count_ = 0;
  memory::PagedVector<std::byte, memory::MemoryUse::residuals> bytes_;
  memory::SpilledBytes spilled_;  // one of the two is empty
};

template <class Body>
void ResidualValues::for_each_bytes(Body body) const {
  if (spilled_.empty()) {
    body(bytes());
    return;
  }
  std::byte room[kPieceBytes];
  for (std::size_t done = 0; done < spilled_.size(); done += kPieceBytes) {
    const std::span<std::byte> piece(room, spilled_.size() - done < kPieceBytes ? spilled_.size() - done : kPieceBytes);
    spilled_.look(done, piece);
    body(std::span<const std::byte>(piece));
  }
}

template <class Change>
void ResidualValues::change(std::uint64_t first, std::uint64_t count, const ResidualRounding& rounding,
                            std::uint64_t index, Change change) {
  constexpr std::uint64_t kPiece = 4 * kResidualBlock;
  for (std::uint64_t done = 0; done < count;) {
    float room[kPiece];
    const std::uint64_t to_boundary = kPiece - (lead_ + first + done) % kResidualBlock;
    const std::uint64_t some = count - done < to_boundary ? count - done : to_boundary;
    const float* before = look(first + done, some, room);
    for (std::uint64_t i = 0; i < some; ++i) {
      room[i] = change(before[i], done + i);
    }
    store(first + done, some, room, rounding, index + done);
    done += some;
  }
}

}  // namespace gradwire::exchange
