// Fuzz target: any bytes of a frame give values or an Error, never a read or write out of bounds. With clang:
//   clang++ -std=c++20 -fsanitize=fuzzer,address -Iinclude -Isrc -I. tests/codec/frame_fuzz.cpp
//   src/{base,wire,codec}/*.cpp
// run on tests/golden/fuzz, and good and bad of its versions. frame_fuzz_test.cpp replays these as a plain test.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "codec/codec.hpp"
#include "gradwire/error.hpp"
#include "wire/frame.hpp"

namespace {

using namespace gradwire;

bool expected(ErrorCode code) {
  return code == ErrorCode::corrupt || code == ErrorCode::mismatch || code == ErrorCode::unsupported;
}

// Believes the frame's header, so that the payload reaches the decoder.
void decode(std::span<const std::byte> frame) {
  const wire::FrameHeader header = wire::parse_header(frame);
  const codec::Codec codec({header.codec, header.k}, static_cast<DType>(header.dtype));
  codec::FrameInfo info;
  info.count = header.count;
  info.first_tile = header.first_tile;
  info.bucket = header.bucket;
  info.step = header.step;
  info.hop = header.hop;
  info.terms = header.terms;
  info.epoch = header.epoch;
  codec::FrameReader reader(codec, info, false, frame, 0);
  codec::FrameReader adder(codec, info, false, frame, 0);
  for (std::uint64_t left = info.count; left > 0;) {
    const auto count = static_cast<std::uint32_t>(left < codec::kTileElements ? left : codec::kTileElements);
    std::vector<std::byte> exact(count * codec.working_bytes());  // of the exact size, for AddressSanitizer
    reader.read(exact.data(), count);
    adder.add(exact.data(), count);
    left -= count;
  }
}

void try_decode(std::span<const std::byte> frame) {
  try {
    decode(frame);
  } catch (const Error& error) {
    if (!expected(error.code())) {
      std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  const auto frame = std::as_bytes(std::span(data, bytes));
  try_decode(frame);
  if (bytes >= gradwire::wire::kHeaderBytes) {  // again without a CRC, which is rarely right after mutations
    std::vector<std::byte> open(frame.begin(), frame.end());
    open[6] &= static_cast<std::byte>(~gradwire::wire::kFlagCrc);
    std::memset(open.data() + 28, 0, 4);
    try_decode(open);
  }
  try {
    static_cast<void>(gradwire::wire::parse_sealed_header(frame));
  } catch (const Error& error) {
    if (!expected(error.code())) {
      std::abort();
    }
  }
  return 0;
}
