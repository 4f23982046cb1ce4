#include "codec/packed_pieces.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "codec/zstd.hpp"

namespace gradwire::codec {
namespace {

constexpr std::size_t kPieceBytes = 1 << 20;
constexpr std::size_t kEachAt = 4, kStoredAt = 5;  // in a piece's head

bool is_size(std::size_t bytes_each) { return bytes_each <= 8 && std::has_single_bit(bytes_each); }

Elements elements_of(std::size_t bytes, std::size_t bytes_each) {
  return {static_cast<std::uint32_t>(bytes / bytes_each), bytes_each};
}

}  // namespace

void require_packing() { require_zstd("save_as = \"exact+zstd\"", "write save_as = \"exact\""); }

void PieceWriter::put(std::span<const std::byte> values, std::size_t bytes_each) {
  if (values.empty()) {
    return;
  }
  if (bytes_each != bytes_each_) {
    flush();
    bytes_each_ = bytes_each;
  }
  if (piece_.empty()) {
    piece_.resize(kPieceBytes);
  }
  while (!values.empty()) {
    const std::size_t some = std::min(values.size(), kPieceBytes - filled_);
    std::memcpy(piece_.data() + filled_, values.data(), some);
    filled_ += some;
    values = values.subspan(some);
    if (filled_ == kPieceBytes) {
      flush();
    }
  }
}

void PieceWriter::flush() {
  if (filled_ == 0) {
    return;
  }
  const std::span<std::byte> whole = std::span(piece_.data(), filled_);
  const std::size_t packed =
      bytes_each_ > 1 ? pack(whole.data(), elements_of(filled_, bytes_each_), whole.first(filled_ - 1)) : 0;
  const auto bytes = static_cast<std::uint32_t>(filled_);
  const auto each = static_cast<std::uint8_t>(bytes_each_);
  const auto stored = packed > 0 ? static_cast<std::uint32_t>(packed) : bytes;
  std::array<std::byte, kPieceHeadBytes> head{};
  std::memcpy(head.data(), &bytes, sizeof bytes);
  std::memcpy(head.data() + kEachAt, &each, sizeof each);
  std::memcpy(head.data() + kStoredAt, &stored, sizeof stored);
  sink_(head);
  sink_(whole.first(stored));
  filled_ = 0;
}

void PieceReader::read(std::span<std::byte> to) {
  if (failed_) {
    throw Error(*failed_);
  }
  try {
    while (!to.empty()) {
      if (at_ == filled_) {
        next();
      }
      const std::size_t some = std::min(to.size(), left());
      std::memcpy(to.data(), piece_.data() + at_, some);
      at_ += some;
      to = to.subspan(some);
    }
  } catch (const Error& error) {
    failed_ = error;
    throw;
  }
}

void PieceReader::next() {
  std::array<std::byte, kPieceHeadBytes> head{};
  source_(head);
  std::uint32_t bytes = 0, stored = 0;
  std::uint8_t each = 0;
  std::memcpy(&bytes, head.data(), sizeof bytes);
  std::memcpy(&each, head.data() + kEachAt, sizeof each);
  std::memcpy(&stored, head.data() + kStoredAt, sizeof stored);
  if (bytes == 0 || bytes > kPieceBytes || !is_size(each) || bytes % each != 0 || stored > bytes ||
      (stored < bytes && each == 1)) {
    throw Error(ErrorCode::corrupt, name_ + ": it is damaged: a piece of " + std::to_string(bytes) +
                                        " bytes in values of " + std::to_string(each) + " is stored in " +
                                        std::to_string(stored) + advice_);
  }
  piece_.resize(std::max<std::size_t>(piece_.size(), bytes));
  if (stored == bytes) {
    source_({piece_.data(), bytes});
  } else {
    unpack_piece(stored, elements_of(bytes, each));
  }
  filled_ = bytes;
  at_ = 0;
}

void PieceReader::unpack_piece(std::uint32_t stored, const Elements& elements) {
  require_zstd(name_, "load a copy that was saved without save_as = \"exact+zstd\"");
  stored_.resize(std::max<std::size_t>(stored_.size(), stored));
  source_({stored_.data(), stored});
  planes_.resize(std::max(planes_.size(), elements.bytes()));
  try {
    const Planes planes =
        unpack({stored_.data(), stored}, elements, {planes_.data(), elements.bytes()}, name_ + ": it is damaged");
    merge(planes, 0, elements, piece_.data());
  } catch (const Error& error) {
    throw Error(error.code(), error.what() + advice_);
  }
}

}  // namespace gradwire::codec
