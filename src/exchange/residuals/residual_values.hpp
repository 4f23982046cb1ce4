// Residuals of consecutive elements of a tensor, kept as f32 or narrower, in memory or partly in a file. Encoders see
// them as f32 in any case.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>

#include "codec/codec.hpp"
#include "gradwire/dtype.hpp"
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

/// Every function but a move may throw the errors of memory::PageFile if the values are spilled.
class ResidualValues {
 public:
  using Spill = std::shared_ptr<memory::SpillCache>;

  ResidualValues() = default;
  /// Holds `count` zeros at first. `dtype` is f32 or bf16. With `spill` they lie there, unless they take less than a
  /// page.
  explicit ResidualValues(std::uint64_t count, DType dtype = DType::f32, const Spill& spill = nullptr);
  explicit ResidualValues(std::span<const float> values);
  ResidualValues(std::initializer_list<float> values) : ResidualValues(std::span(values.begin(), values.size())) {}

  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] std::uint64_t size() const noexcept { return byte_count() / element_bytes(dtype_); }
  [[nodiscard]] bool empty() const noexcept { return byte_count() == 0; }
  [[nodiscard]] std::size_t byte_count() const noexcept { return bytes_.size() + spilled_.size(); }
  /// Returns whether values of this size would lie where these do if they were made with `spill`.
  [[nodiscard]] bool lies_in(const Spill& spill) const noexcept;
  /// Returns the values as they are stored; none where they are spilled.
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_.values(); }
  [[nodiscard]] std::span<std::byte> bytes() noexcept { return {bytes_.data(), bytes_.size()}; }
  /// Calls body(span of bytes) for all values as they are stored, one piece after the other.
  template <class Body>
  void for_each_bytes(Body body) const;
  [[nodiscard]] float operator[](std::uint64_t index) const;

  /// Returns the values themselves if they are f32 in memory; otherwise null.
  [[nodiscard]] float* floats() noexcept;
  /// Return values [first, first + count) as f32: in place, or written to `scratch`, which holds as many. A step loads
  /// each value once before it stores the new one; look() is for every other reader.
  [[nodiscard]] const float* load(std::uint64_t first, std::uint64_t count, float* scratch) const;
  [[nodiscard]] const float* look(std::uint64_t first, std::uint64_t count, float* scratch) const;
  /// Stores f32 values, rounded where the dtype asks for it. `index` is that of the first value in its tensor.
  void store(std::uint64_t first, std::uint64_t count, const float* values, const ResidualRounding& rounding,
             std::uint64_t index);
  /// Copies stored values of the same dtype.
  void copy(std::uint64_t first, std::uint64_t count, const ResidualValues& from, std::uint64_t from_first);
  void fill_zero(std::uint64_t first, std::uint64_t count);
  [[nodiscard]] bool any_nonzero(std::uint64_t first, std::uint64_t count) const;
  /// values[i] = change(values[i], i) for all i, as f32.
  template <class Change>
  void change(std::uint64_t first, std::uint64_t count, const ResidualRounding& rounding, std::uint64_t index,
              Change change);

  [[nodiscard]] ResidualValues part(std::uint64_t first, std::uint64_t count) const;
  /// Returns the same values in another dtype, or in another place.
  [[nodiscard]] ResidualValues as(DType dtype, const Spill& spill, const ResidualRounding& rounding,
                                  std::uint64_t index) const;

  /// Returns the handle of their memory, for PagePool::compact(); an empty one where they are spilled.
  [[nodiscard]] memory::Block& block() noexcept { return bytes_.block(); }
  /// Compares the values, of any dtype.
  friend bool operator==(const ResidualValues& a, const ResidualValues& b);

 private:
  static constexpr std::size_t kPieceBytes = 4096;  // of spilled values that are read piece by piece
  [[nodiscard]] const float* read(std::uint64_t first, std::uint64_t count, float* scratch, bool loads) const;

  DType dtype_ = DType::f32;
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
  constexpr std::uint64_t kPiece = 256;
  for (std::uint64_t done = 0; done < count; done += kPiece) {
    float room[kPiece];
    const std::uint64_t some = count - done < kPiece ? count - done : kPiece;
    const float* before = look(first + done, some, room);
    for (std::uint64_t i = 0; i < some; ++i) {
      room[i] = change(before[i], done + i);
    }
    store(first + done, some, room, rounding, index + done);
  }
}

}  // namespace gradwire::exchange
