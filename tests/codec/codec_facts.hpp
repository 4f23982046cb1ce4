// What is known of each codec by name: error on the four distributions and encoded sizes. A registered codec without a
// row here fails the tests that use it.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace gradwire::test {

struct CodecFacts {
  std::string_view name;
  std::array<double, 4> nmse;             // in the order of kDistributions; docs/numerics.md
  std::array<std::uint64_t, 13> payload;  // bytes of kSizeCounts f32 elements
};

inline constexpr std::array<std::uint64_t, 13> kSizeCounts{0,   1,   2,    31,   32,   33,     255,
                                                           256, 257, 4095, 4096, 4097, 1000007};

inline constexpr std::array kCodecFacts{
    CodecFacts{"exact", {0, 0, 0, 0}, {0, 16, 16, 128, 128, 144, 1024, 1024, 1040, 16384, 16384, 16400, 4000032}},
    CodecFacts{
        "bf16", {2.8e-6, 2.8e-6, 2.7e-6, 2.3e-6}, {0, 16, 16, 64, 64, 80, 512, 512, 528, 8192, 8192, 8208, 2000016}},
    CodecFacts{
        "fp16", {4.4e-8, 4.4e-8, 4.5e-8, 4.2e-8}, {0, 16, 16, 64, 80, 80, 512, 528, 528, 8224, 8224, 8240, 2007840}},
    CodecFacts{
        "int8", {4.8e-5, 1.0e-4, 3.0e-4, 3.1e-4}, {0, 16, 16, 48, 48, 48, 272, 272, 272, 4128, 4128, 4144, 1007824}},
};

constexpr const CodecFacts* facts_of(std::string_view name) {
  for (const CodecFacts& facts : kCodecFacts) {
    if (facts.name == name) {
      return &facts;
    }
  }
  return nullptr;
}

}  // namespace gradwire::test
