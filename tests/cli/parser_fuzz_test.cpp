// Tests the parsers of texts that users write besides policies: model files, units, links. Damaged texts are refused,
// or read.
#include <gtest/gtest.h>

#include "base/units.hpp"
#include "cli/model_file.hpp"
#include "gradwire/codec_spec.hpp"
#include "gradwire/emulation.hpp"
#include "tests/support/mutations.hpp"

namespace gradwire::test {
namespace {

const std::vector<std::string> kPieces{"[[layer]]\n",
                                       "shape = ",
                                       "[",
                                       "]",
                                       "{",
                                       "}",
                                       "\"",
                                       ".",
                                       "=",
                                       "\n",
                                       "\xff",
                                       ",",
                                       ";",
                                       "9223372036854775807",
                                       "-1",
                                       "1e999",
                                       "nan",
                                       "0x",
                                       "inf",
                                       std::string(1, '\0'),
                                       "repeat = 100000\n",
                                       "count = 0\n",
                                       "...........",
                                       "us",
                                       "Gbit/s",
                                       "%",
                                       "@",
                                       "+"};

TEST(ParserFuzz, ModelFiles) {
  const std::vector<std::string> texts{
      "compute = \"1ms\"\n[[layer]]\nname = \"embed\"\nshape = [1000, 64]\n[[layer]]\nname = \"block.#.w\"\nshape = "
      "[64, 64]\nrepeat = 3\ndtype = \"bf16\"\n",
      "compute = \"20ms\"\n[[layer]]\nname = \"a\"\ncount = 12\n"};
  parse_mutations(texts, kPieces, 141, 4000, [](const std::string& text) {
    for (const TensorInfo& layer : cli::ModelFile::parse(text, "fuzz").layers) {
      ASSERT_FALSE(layer.name.empty());
    }
  });
}

TEST(ParserFuzz, UnitsLinksAndCodecs) {
  parse_mutations({"64KiB", "1GiB", "12", "1.5MiB"}, kPieces, 142, 4000,
                  [](const std::string& text) { static_cast<void>(parse_bytes(text)); });
  parse_mutations({"5ms", "2s", "1.5us", "100ns"}, kPieces, 143, 4000,
                  [](const std::string& text) { static_cast<void>(parse_duration(text)); });
  parse_mutations({"1Gbit/s", "100Mbit/s"}, kPieces, 144, 4000,
                  [](const std::string& text) { static_cast<void>(parse_rate(text)); });
  parse_mutations({"5%", "0.25"}, kPieces, 145, 4000,
                  [](const std::string& text) { static_cast<void>(parse_fraction(text)); });
  parse_mutations({"int8", "topk(1%)+int8", "topk(0.03)+exact", "exact"}, kPieces, 146, 4000,
                  [](const std::string& text) { static_cast<void>(CodecSpec::parse(text)); });
  parse_mutations({"1Gbit/s,50us", "100Mbit/s"}, kPieces, 147, 4000,
                  [](const std::string& text) { static_cast<void>(Link::parse(text)); });
  parse_mutations({"100Mbit/s,1ms until 20s, 1Gbit/s; noise 30% per 100ms seed 7", "1Gbit/s"}, kPieces, 148, 4000,
                  [](const std::string& text) { static_cast<void>(LinkSchedule::parse(text)); });
}

}  // namespace
}  // namespace gradwire::test
