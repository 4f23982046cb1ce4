// Lists the expected figures of each codec by name: error on the four distributions, and encoded sizes. A registered
// codec without a row here fails the tests that use it.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace gradwire::test {

struct CodecFacts {
  std::string_view name;
  std::array<double, 4> nmse;             // in the order of kDistributions; docs/explanation/numerics.md
  std::array<std::uint64_t, 13> payload;  // bytes of kSizeCounts f32 elements
  double equals = 0.3;                    // relative error of an element among equal elements
  double largest = 3.4028235e38;          // magnitude from which a block counts as not finite
  bool one_bit = false;                   // only the sign of an element survives
};

inline constexpr std::array<std::uint64_t, 13> kSizeCounts{0,   1,   2,    31,   32,   33,     255,
                                                           256, 257, 4095, 4096, 4097, 1000007};

inline constexpr std::array kCodecFacts{
    CodecFacts{"exact", {0, 0, 0, 0}, {0, 16, 16, 128, 128, 144, 1024, 1024, 1040, 16384, 16384, 16400, 4000032}, 0.01},
    CodecFacts{
        "bf16", {2.8e-6, 2.8e-6, 2.7e-6, 2.3e-6}, {0, 16, 16, 64, 64, 80, 512, 512, 528, 8192, 8192, 8208, 2000016}},
    CodecFacts{
        "fp16", {4.4e-8, 4.4e-8, 4.5e-8, 4.2e-8}, {0, 16, 16, 64, 80, 80, 512, 528, 528, 8224, 8224, 8240, 2007840}},
    CodecFacts{
        "int8", {4.8e-5, 1.0e-4, 3.0e-4, 3.1e-4}, {0, 16, 16, 48, 48, 48, 272, 272, 272, 4128, 4128, 4144, 1007824}},
    CodecFacts{
        "fp8", {6.8e-4, 6.5e-4, 5.4e-4, 5.2e-4}, {0, 16, 16, 48, 48, 48, 272, 272, 272, 4160, 4160, 4176, 1015648}},
    CodecFacts{"int4",
               {.0093, .0093, .0089, .0084},
               {0, 144, 144, 144, 144, 144, 144, 144, 272, 2080, 2080, 2224, 507920},
               0.6,
               1e37},
    CodecFacts{
        "int2", {.116, .116, .112, .112}, {0, 80, 80, 80, 80, 80, 80, 80, 144, 1056, 1056, 1136, 257872}, 1.9, 1e37},
    CodecFacts{"sign",
               {.362, .499, .589, .850},
               {0, 16, 16, 16, 16, 16, 48, 48, 48, 544, 544, 560, 132816},
               0.01,
               3.4028235e38,
               true},
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
