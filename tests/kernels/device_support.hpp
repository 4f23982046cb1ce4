// Shared by the suites of the emulated kernels: guarded memory, inputs with every special value, and the same job by
// the host's tensors, frame writer and reader.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "codec/codec.hpp"
#include "codec/tensor_list.hpp"
#include "kernels/device/operations.hpp"
#include "simt_emulator.hpp"
#include "tests/codec/codec_support.hpp"

namespace gradwire::test {

/// Memory like that of a device, aligned to 64 bytes plus `shift`, with marks around it that must not be written.
class Memory {
 public:
  explicit Memory(std::size_t bytes, std::size_t shift = 0) : shift_(kGuard + shift), bytes_(bytes) {
    storage_.resize(shift_ + bytes + 2 * kGuard, kMark);
    shift_ += (64 - reinterpret_cast<std::uintptr_t>(storage_.data()) % 64) % 64;
  }
  Memory(const std::vector<std::byte>& from, std::size_t shift = 0) : Memory(from.size(), shift) {
    std::copy(from.begin(), from.end(), data());
  }
  template <class T>
  explicit Memory(const std::vector<T>& from, std::size_t shift = 0) : Memory(from.size() * sizeof(T), shift) {
    if (bytes_ != 0) {
      std::memcpy(data(), from.data(), bytes_);
    }
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  Memory(Memory&&) noexcept = default;
  Memory& operator=(Memory&&) noexcept = default;
  ~Memory() {
    const auto untouched = [](auto begin, auto end) {
      return std::all_of(begin, end, [](std::byte b) { return b == kMark; });
    };
    const auto begin = storage_.begin() + static_cast<std::ptrdiff_t>(shift_);
    EXPECT_TRUE(storage_.empty() || untouched(storage_.begin(), begin)) << "written before the memory";
    EXPECT_TRUE(storage_.empty() || untouched(begin + static_cast<std::ptrdiff_t>(bytes_), storage_.end()))
        << "written behind the memory";
  }

  [[nodiscard]] std::byte* data() { return storage_.data() + shift_; }
  [[nodiscard]] std::uint8_t* frame() { return reinterpret_cast<std::uint8_t*>(data()); }
  template <class T>
  [[nodiscard]] T* as() {
    return reinterpret_cast<T*>(data());
  }
  [[nodiscard]] std::vector<std::byte> bytes() const {
    const auto begin = storage_.begin() + static_cast<std::ptrdiff_t>(shift_);
    return {begin, begin + static_cast<std::ptrdiff_t>(bytes_)};
  }
  template <class T>
  [[nodiscard]] std::vector<T> to() const {
    std::vector<T> values(bytes_ / sizeof(T));
    if (bytes_ != 0) {
      std::memcpy(values.data(), storage_.data() + shift_, bytes_);
    }
    return values;
  }

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr std::byte kMark{0xA5};
  std::vector<std::byte> storage_;
  std::size_t shift_;
  std::size_t bytes_;
};

enum class Kind : std::uint8_t { plain, special };

/// Returns Gaussian values. The special kind has blocks of 128 that are zero, equal, denormal, tiny or huge, have
/// single large elements or -0, and some with NaN and Inf, in an order that `seed` rotates.
std::vector<float> inputs(std::size_t count, unsigned seed, Kind kind);

/// Returns the elements of `dtype` nearest to `values`.
std::vector<std::byte> as_tensor(DType dtype, const std::vector<float>& values);

/// Returns elements of `dtype` as working values.
Values working_values(const codec::Codec& codec, DType dtype, const std::vector<std::byte>& tensor);

/// Returns the first difference between two byte strings, and "" if there is none.
std::string difference(const std::vector<std::byte>& got, const std::vector<std::byte>& wanted);

/// Does the same for elements of `dtype`, where NaN equals NaN.
std::string difference(DType dtype, const std::vector<std::byte>& got, const std::vector<std::byte>& wanted);

/// The fields of a frame for info_for(count, first_tile), whose step is in `step`.
struct Call {
  explicit Call(const codec::Codec& codec);
  kernels::CallFields fields;
  std::uint32_t step;
  kernels::DeviceStatus status;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  Call(Call&&) = delete;
  Call& operator=(Call&&) = delete;
  ~Call() = default;
};

kernels::FrameCodec frame_codec(const codec::Codec& codec);
kernels::FramePlace place_of(Memory& frame, std::size_t count, std::uint32_t first_tile = 0, std::uint8_t hop = 0,
                             int peer = 1);

/// Returns all codecs, each over the dtypes and with the k that make a difference to a kernel.
std::vector<Case> device_cases();

}  // namespace gradwire::test
