// The damaged golden frames.
#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "golden_frames.hpp"
#include "gradwire/error.hpp"
#include "kernels/topk.hpp"
#include "wire/crc32c.hpp"
#include "wire/frame.hpp"

namespace gradwire::test {
namespace {

using FrameBytes = std::vector<std::byte>;

void correct_crc(std::vector<std::byte>& frame) {
  std::fill_n(frame.begin() + 28, 4, std::byte{0});
  const std::uint32_t crc = wire::crc32c(frame);
  std::memcpy(frame.data() + 28, &crc, sizeof crc);
}

// Makes damaged copies of one good frame.
class Damager {
 public:
  Damager(const GoldenFrame& good, std::vector<BadFrame>& to) : good_(good), to_(to) {}

  template <class Damage>
  void add(ErrorCode code, const std::string& what, const std::string& reason, Damage damage) {
    BadFrame bad{std::string(to_string(code)) + "-" + what, good_.name, reason, good_.frame};
    damage(bad.frame);
    to_.push_back(std::move(bad));
  }
  // Damages a frame and corrects its CRC.
  template <class Damage>
  void add_unseen(ErrorCode code, const std::string& what, const std::string& reason, Damage damage) {
    add(code, what, reason, [&](FrameBytes& frame) {
      damage(frame);
      correct_crc(frame);
    });
  }
  void add_header(ErrorCode code, const std::string& what, const std::string& reason, std::size_t byte, int value) {
    add_unseen(code, what, reason, [&](FrameBytes& frame) { frame[byte] = static_cast<std::byte>(value); });
  }

 private:
  const GoldenFrame& good_;
  std::vector<BadFrame>& to_;
};

void add_bad_headers(int version, Damager damager) {
  const std::string crc = "CRC";
  const bool first = version == 1;
  const std::size_t terms = first ? 11 : 10;
  const int one_term = first ? 1 : 0x10;
  damager.add(ErrorCode::corrupt, "empty", "a header alone has 32", [](FrameBytes& frame) { frame.clear(); });
  damager.add(ErrorCode::corrupt, "half-a-header", "a header alone has 32",
              [](FrameBytes& frame) { frame.resize(16); });
  damager.add(ErrorCode::corrupt, "header-only", crc, [](FrameBytes& frame) { frame.resize(32); });
  damager.add(ErrorCode::corrupt, "one-byte-short", crc, [](FrameBytes& frame) { frame.pop_back(); });
  damager.add(ErrorCode::corrupt, "one-byte-long", crc, [](FrameBytes& frame) { frame.push_back(std::byte{0}); });
  damager.add(ErrorCode::corrupt, "payload-bit", crc, [](FrameBytes& frame) { frame[100] ^= std::byte{0x40}; });
  damager.add(ErrorCode::corrupt, "header-bit", crc, [](FrameBytes& frame) { frame[12] ^= std::byte{1}; });
  damager.add(ErrorCode::corrupt, "crc-bit", crc, [](FrameBytes& frame) { frame[28] ^= std::byte{1}; });
  damager.add_header(ErrorCode::corrupt, "magic", "magic number", 0, 'X');
  damager.add_header(ErrorCode::corrupt, "flags", "unknown flags", 6, 0xF1);
  damager.add_header(ErrorCode::corrupt, "unknown-terms", "unknown terms 0x8", terms, first ? 8 : 0x80);
  if (!first) {
    damager.add_header(ErrorCode::corrupt, "length", "says that its payload has", 6, 5);
  }
  damager.add_header(ErrorCode::mismatch, "terms", "a mean", terms, one_term);
  if (!first) {
    damager.add_header(ErrorCode::mismatch, "epoch", "epoch 1 where 0", 11, 1);
  }
  damager.add_header(ErrorCode::corrupt, "dtype", "unknown dtype 77", 5, 77);
  if (!first) {
    damager.add_header(ErrorCode::mismatch, "version", "wire version 3", 4, 3);
  }
  damager.add_header(ErrorCode::mismatch, "other-dtype", "dtype f64 where f32", 5, 4);
  damager.add_header(ErrorCode::mismatch, "codec", "codec unknown(200) where exact", 7, 200);
  damager.add_header(ErrorCode::mismatch, "k", "codec topk(41/4096)+exact where exact", 8, 41);
  damager.add_header(ErrorCode::mismatch, "hop", "hop 9 where 0", 10, 9);
  damager.add_header(ErrorCode::mismatch, "count", "count", 15, 0xFF);
  damager.add_header(ErrorCode::mismatch, "first-tile", "first tile 99 where 7", 16, 99);
  damager.add_header(ErrorCode::mismatch, "bucket", "bucket 99 where 2", 20, 99);
  damager.add_header(ErrorCode::mismatch, "step", "where 70000", 24, 0);
}

// Adds headers for rules that the frames of version 1 in its folder do not test.
void add_bad_headers_of_version2(Damager damager) {
  damager.add_header(ErrorCode::mismatch, "k-beyond-a-tile", "codec topk(4352/4096)+exact where exact", 9, 0x11);
  damager.add(ErrorCode::mismatch, "no-crc", "no CRC", [](FrameBytes& frame) {
    frame[6] &= static_cast<std::byte>(~wire::kFlagCrc);
    std::fill_n(frame.begin() + 28, 4, std::byte{0});
  });
  damager.add(ErrorCode::corrupt, "crc-without-its-flag", "CRC",
              [](FrameBytes& frame) { frame[6] &= static_cast<std::byte>(~wire::kFlagCrc); });
}

void add_bad_lengths(Damager damager) {
  damager.add_unseen(ErrorCode::corrupt, "length-cut-off", "a header with a length has 48",
                     [](FrameBytes& frame) { frame.resize(40); });
  damager.add_unseen(ErrorCode::corrupt, "length-one-less", "says that its payload has", [](FrameBytes& frame) {
    frame[32] = static_cast<std::byte>(std::to_integer<int>(frame[32]) - 1);
  });
  damager.add_header(ErrorCode::corrupt, "length-without-zeros", "zeros behind its length", 47, 1);
  damager.add_unseen(ErrorCode::corrupt, "length-of-another-payload", "elements need", [](FrameBytes& frame) {
    frame.resize(frame.size() - 16);
    frame[32] = static_cast<std::byte>(std::to_integer<int>(frame[32]) - 16);  // it stays above 0: no borrow
  });
}

// Damages the sizes of the four planes, from byte 48 on, and the planes of f32 elements, from byte 64 on.
void add_bad_planes(const GoldenFrame& good, Damager damager) {
  constexpr std::size_t kSizes = 48;
  constexpr std::size_t kPlanes = 64;
  const auto size_of = [&](std::size_t plane) {
    std::uint32_t bytes = 0;
    std::memcpy(&bytes, good.frame.data() + kSizes + 4 * plane, sizeof bytes);
    return bytes;
  };
  const auto with_size = [=](std::size_t plane, std::uint32_t bytes) {
    return [=](FrameBytes& frame) { std::memcpy(frame.data() + kSizes + 4 * plane, &bytes, sizeof bytes); };
  };
  const auto with_length = [](FrameBytes& frame) {
    const std::uint64_t length = frame.size() - kSizes;
    std::memcpy(frame.data() + wire::kHeaderBytes, &length, sizeof length);
  };
  damager.add_unseen(ErrorCode::corrupt, "plane-longer-than-its-elements",
                     "byte plane 3 has 4397 bytes for 4396 elements", with_size(3, good.info.count + 1));
  damager.add_unseen(ErrorCode::corrupt, "plane-beyond-the-frame", "it ends too early", with_size(3, size_of(3) + 1));
  damager.add_unseen(ErrorCode::corrupt, "plane-cut-off", "byte plane 3 cannot be decompressed to 4396 bytes",
                     with_size(3, size_of(3) - 1));
  damager.add_unseen(ErrorCode::corrupt, "plane-is-no-zstd", "byte plane 3 cannot be decompressed to 4396 bytes",
                     [=](FrameBytes& frame) { frame[kPlanes + size_of(0) + size_of(1) + size_of(2)] ^= std::byte{1}; });
  damager.add_unseen(ErrorCode::corrupt, "planes-and-a-byte", "1 bytes too many", [=](FrameBytes& frame) {
    frame.push_back(std::byte{0});
    with_length(frame);
  });
  damager.add_unseen(ErrorCode::corrupt, "packed-and-not-smaller", "is packed and has", [=](FrameBytes& frame) {
    frame.resize(codec::Codec(good.spec, good.dtype).frame_bytes(good.info.count));
    with_length(frame);
  });
}

// The indices of one tile of a frame of version 2 behind topk.
class TileIndices {
 public:
  TileIndices(const GoldenFrame& good, FrameBytes& frame, bool second_tile)
      : count_(second_tile ? good.info.count - kernels::kTileElements : kernels::kTileElements),
        code_(kernels::index_code(count_, kernels::selected_count(good.spec.k, count_))),
        bytes_(frame.data() + wire::kHeaderBytes +
               (second_tile ? codec::Codec(good.spec, good.dtype).payload_bytes(kernels::kTileElements) : 0)) {
    for (std::uint32_t place = 0; place < code_.run; ++place) {
      if (bit(place)) {
        places_.push_back(place);
      }
    }
  }

  [[nodiscard]] const kernels::IndexCode& code() const { return code_; }
  [[nodiscard]] std::uint32_t place(std::size_t j) const { return places_[j]; }
  [[nodiscard]] bool bit(std::uint32_t i) const {
    return std::to_integer<int>(bytes_[i / 8] >> (i % 8) & std::byte{1}) != 0;
  }
  void set(std::uint32_t i, bool value) {
    const auto mask = static_cast<std::byte>(1U << (i % 8));
    bytes_[i / 8] = value ? bytes_[i / 8] | mask : bytes_[i / 8] & ~mask;
  }
  [[nodiscard]] std::uint32_t low(std::uint32_t j) const {
    std::uint32_t bits = 0;
    for (std::uint32_t b = 0; b < code_.low; ++b) {
      bits |= static_cast<std::uint32_t>(bit(code_.run + j * code_.low + b)) << b;
    }
    return bits;
  }
  void set_low(std::uint32_t j, std::uint32_t bits) {
    for (std::uint32_t b = 0; b < code_.low; ++b) {
      set(code_.run + j * code_.low + b, ((bits >> b) & 1U) != 0);
    }
  }
  void remove_last() { set(places_.back(), false); }
  void add_one() {
    std::uint32_t place = 0;
    while (bit(place)) {
      ++place;
    }
    set(place, true);
  }
  void set_last_bit() { set(8 * code_.bytes() - 1, true); }
  // Returns the first pair that differs only in the lower bits.
  [[nodiscard]] std::uint32_t neighbours() const {
    std::uint32_t j = 0;
    while (place(j + 1) != place(j) + 1) {
      ++j;
    }
    return j;
  }
  // Changes the last index to `index`.
  void move_last(std::uint32_t index) {
    remove_last();
    set(code_.place(index, code_.selected - 1), true);
    set_low(code_.selected - 1, index & ((1U << code_.low) - 1));
  }

 private:
  std::uint32_t count_;
  kernels::IndexCode code_;
  std::byte* bytes_;
  std::vector<std::uint32_t> places_ = {};
};

constexpr auto kBadIndices = "indices not ascending, beyond the tile or not as many as it keeps";

void add_bad_indices(const GoldenFrame& good, std::vector<BadFrame>& frames) {
  const auto add = [&](const char* what, bool second_tile, const std::function<void(TileIndices&)>& damage) {
    const auto reason = "tile " + std::to_string(good.info.first_tile + (second_tile ? 1 : 0)) + ": " + kBadIndices;
    Damager(good, frames).add_unseen(ErrorCode::corrupt, what, reason, [&](FrameBytes& frame) {
      TileIndices indices(good, frame, second_tile);
      damage(indices);
    });
  };
  const bool bitmap = kernels::index_code(kernels::kTileElements, good.spec.k).spread == 0;
  if (bitmap) {
    add("bitmap-too-few", false, &TileIndices::remove_last);
    add("bitmap-too-many", true, &TileIndices::add_one);
    add("bitmap-spare-bit", true, &TileIndices::set_last_bit);
    return;
  }
  add("indices-too-few", false, &TileIndices::remove_last);
  add("indices-too-many", true, &TileIndices::add_one);
  add("indices-spare-bit", false, &TileIndices::set_last_bit);
  add("indices-descend", false, [](TileIndices& indices) {
    const std::uint32_t j = indices.neighbours();
    const std::uint32_t low = indices.low(j);
    indices.set_low(j, indices.low(j + 1));
    indices.set_low(j + 1, low);
  });
  add("indices-twice", false, [](TileIndices& indices) {
    const std::uint32_t j = indices.neighbours();
    indices.set_low(j + 1, indices.low(j));
  });
  add("indices-beyond", true,
      [&](TileIndices& indices) { indices.move_last(good.info.count - kernels::kTileElements); });
}

// Indices have 12 bits each; the tiles keep 41 and 3 elements.
void add_bad_indices_of_version1(const GoldenFrame& good, std::vector<BadFrame>& frames) {
  constexpr std::size_t kFirst = wire::kHeaderBytes;
  constexpr std::size_t kSecond = kFirst + 112;  // 62 bytes of indices and 43 of values, rounded up to 16
  const auto add = [&](const char* what, bool second_tile, const std::function<void(FrameBytes&)>& damage) {
    const auto reason = "tile " + std::to_string(good.info.first_tile + (second_tile ? 1 : 0)) + ": " + kBadIndices;
    Damager(good, frames).add_unseen(ErrorCode::corrupt, what, reason, damage);
  };
  const auto first_pair = [](const FrameBytes& frame) {
    return std::to_integer<std::uint32_t>(frame[kFirst]) | std::to_integer<std::uint32_t>(frame[kFirst + 1]) << 8 |
           std::to_integer<std::uint32_t>(frame[kFirst + 2]) << 16;
  };
  const auto set_first_pair = [](FrameBytes& frame, std::uint32_t pair) {
    std::memcpy(frame.data() + kFirst, &pair, 3);
  };
  add("indices-descend", false, [&](FrameBytes& frame) {
    const std::uint32_t pair = first_pair(frame);
    set_first_pair(frame, pair >> 12 | (pair & 0xFFFU) << 12);
  });
  add("indices-twice", false, [&](FrameBytes& frame) {
    const std::uint32_t pair = first_pair(frame);
    set_first_pair(frame, (pair & 0xFFFU) | (pair & 0xFFFU) << 12);
  });
  add("indices-beyond", true, [&](FrameBytes& frame) {
    const auto index = static_cast<std::uint16_t>(good.info.count - kernels::kTileElements);
    std::memcpy(frame.data() + kSecond + 3, &index, sizeof index);
  });
  add("indices-spare-bit", true, [&](FrameBytes& frame) { frame[kSecond + 4] |= std::byte{0x80}; });
}

}  // namespace

std::vector<BadFrame> bad_frames(int version, const std::vector<GoldenFrame>& good) {
  std::vector<BadFrame> frames;
  add_bad_headers(version, Damager(find_golden(good, "exact-f32"), frames));
  if (version == 1) {
    add_bad_indices_of_version1(find_golden(good, "topk41-int8-f32"), frames);
    return frames;
  }
  add_bad_headers_of_version2(Damager(find_golden(good, "exact-f32"), frames));
  add_bad_lengths(Damager(find_golden(good, "length-fp8-f32"), frames));
  add_bad_planes(find_golden(good, "exact+zstd-f32"), Damager(find_golden(good, "exact+zstd-f32"), frames));
  add_bad_indices(find_golden(good, "topk41-int8-f32"), frames);
  add_bad_indices(find_golden(good, "topk1500-int8-f32"), frames);
  return frames;
}

}  // namespace gradwire::test
