// Tests codecs on threads with the smallest possible stack, since jobs make sums from such threads.
#include <gtest/gtest.h>

#include "codec_support.hpp"
#include "tests/support/small_stack.hpp"

namespace gradwire::test {
namespace {

#ifndef GRADWIRE_SANITIZED  // sanitizers have larger frames

constexpr std::size_t kSmallest = 16384;
constexpr std::uint32_t kCount = kernels::kTileElements;

struct Tile {
  std::vector<double> values = std::vector<double>(kCount, 0.25);  // values as floats or doubles
  std::vector<float> residual = std::vector<float>(kCount);
  std::vector<std::uint8_t> payload = std::vector<std::uint8_t>(16 * kCount);
};

void code(const codec::TileCoder& coder, std::uint16_t k, std::uint32_t count, Tile& tile) {
  const kernels::Tile where{.bucket = 1, .step = 2, .index = 3, .k = k};
  static_cast<void>(coder.encode(where, tile.values.data(), nullptr, count, tile.payload.data()));
  static_cast<void>(
      coder.encode(where, tile.values.data(), kernels::Residual(tile.residual.data()), count, tile.payload.data()));
  static_cast<void>(coder.decode(where, tile.payload.data(), count, tile.values.data()));
  static_cast<void>(coder.decode_add(where, tile.payload.data(), count, tile.values.data()));
}

// Mutation tried: a Selection on the stack replaces working_memory_as() in topk, which ends in SIGSEGV.
TEST(SmallStack, EveryCodecOnEveryInstructionSet) {
  Tile tile;
  for (const codec::InstructionSet& set : codec::instruction_sets()) {
    for (const Case& one : all_cases()) {
      const codec::TileCoder& coder = set.coder(*one.entry, one.dtype, one.k);
      SCOPED_TRACE(std::string(set.name) + " " + std::string(one.entry->name) + " k " + std::to_string(one.k));
      run_on_stack_of(kSmallest, [&] {
        code(coder, one.k, kCount, tile);
        code(coder, one.k, kCount - 7, tile);
      });
    }
  }
}

TEST(SmallStack, FramesOfVersion1) {
  Tile tile;
  for (const codec::CodecEntry& entry : codec::codecs()) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      const codec::TileCoder& coder = codec::version1_selected_coder(entry, dtype);
      run_on_stack_of(kSmallest, [&] {
        const kernels::Tile where{.bucket = 1, .step = 2, .index = 3, .k = 41};
        static_cast<void>(coder.decode(where, tile.payload.data(), kCount, tile.values.data()));
        static_cast<void>(coder.decode_add(where, tile.payload.data(), kCount, tile.values.data()));
      });
    }
  }
}

#endif

}  // namespace
}  // namespace gradwire::test
