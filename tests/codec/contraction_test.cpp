// Error of each codec on the four distributions: at most 1.1 times what docs/numerics.md states, and below 1.
#include <gtest/gtest.h>

#include "codec_facts.hpp"
#include "codec_support.hpp"
#include "tests/support/distributions.hpp"

namespace gradwire::test {
namespace {

TEST(Contraction, StaysWithinTheStatedError) {
  const std::uint64_t seed = 12;  // a draw of lognormal_rows varies by a factor of 2: few rows hold its energy
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (std::size_t d = 0; d < kDistributions.size(); ++d) {
    const std::vector<float> values = draw(kDistributions[d], 1U << 20, seed);
    for (const codec::CodecEntry& entry : codec::codecs()) {
      SCOPED_TRACE(std::string(entry.name) + " on " + std::string(to_string(kDistributions[d])));
      const codec::Codec codec({entry.id, 0}, DType::f32);
      const Frame frame = encode(codec, Values(codec.working(), values), nullptr, false);
      const Values decoded = decode(codec, frame, values.size(), nullptr, false);
      std::vector<float> back(values.size());
      for (std::size_t i = 0; i < back.size(); ++i) {
        back[i] = static_cast<float>(decoded[i]);
      }
      const double error = normalized_squared_error(values, back);
      const CodecFacts* facts = facts_of(entry.name);
      ASSERT_NE(facts, nullptr) << "give it a row in codec_facts.hpp";
      EXPECT_LE(error, 1.1 * facts->nmse[d]);
      EXPECT_LT(error, 1.0);
      EXPECT_EQ(error > 0, entry.lossy);
    }
  }
}

}  // namespace
}  // namespace gradwire::test
