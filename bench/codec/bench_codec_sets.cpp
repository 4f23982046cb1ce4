// Times encoding with a residual, and decode + add, of each codec on each instruction set that this CPU supports, on
// one thread. Every call comes right after a memcpy of the same input, and medians of their ratios count.
//   bench_codec_sets [--codecs int8,int4] [--sets AVX2] [--mib 16] [--rounds 41] [--markdown FILE]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "bench/support/command_line.hpp"
#include "bench/support/report.hpp"
#include "bench/support/samples.hpp"
#include "bench/support/text_table.hpp"
#include "codec/registry.hpp"
#include "gradwire/codec_spec.hpp"
#include "tests/support/distributions.hpp"

namespace gradwire::bench {
namespace {

constexpr std::uint32_t kTile = codec::kTileElements;

struct Options {
  std::vector<std::string> codecs = {"int8", "int4", "int2", "sign", "bf16", "topk(1%)+int8"};
  std::vector<std::string> sets;  // empty: all
  std::uint32_t mib = 16;
  std::uint32_t rounds = 41;
  std::string markdown;
};

double milliseconds(const auto& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  asm volatile("" ::: "memory");
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

// One codec on one instruction set, over all tiles.
class Job {
 public:
  Job(const codec::InstructionSet& set, const CodecSpec& spec, const std::vector<float>& values)
      : coder_(set.coder(*codec::find_codec(spec.values), DType::f32, spec.k)),
        k_(spec.k),
        values_(values),
        residual_(values.size()),
        sum_(values.size()),
        tile_bytes_(coder_.tile_bytes(spec.k, kTile)),
        frames_(values.size() / kTile * tile_bytes_) {}

  void encode() {
    for (std::uint32_t tile = 0; tile < tiles(); ++tile) {
      coder_.encode(place(tile), values_.data() + first(tile), residual_.data() + first(tile), kTile, at(tile));
    }
  }
  void decode_add() {
    for (std::uint32_t tile = 0; tile < tiles(); ++tile) {
      coder_.decode_add(place(tile), at(tile), kTile, sum_.data() + first(tile));
    }
  }
  /// Reads and writes the same memory as encode(), with almost no computing.
  void move() {
    for (std::uint32_t tile = 0; tile < tiles(); ++tile) {
      const float* value = values_.data() + first(tile);
      float* residual = residual_.data() + first(tile);
      for (std::uint32_t i = 0; i < kTile; ++i) {
        residual[i] += value[i];
      }
      std::memset(at(tile), static_cast<int>(tile & 0xFFU), tile_bytes_);
    }
  }
  [[nodiscard]] double bytes_per_element() const { return static_cast<double>(tile_bytes_) / kTile; }
  /// Returns the share of memcpy's speed that memory allows for encode(). For each element memcpy reads and writes 4
  /// bytes; encoding reads 8, writes 4, and writes the frame, whose cache lines are read before they are written.
  [[nodiscard]] double encode_limit() const { return 8 / (12 + 2 * bytes_per_element()); }
  /// Returns the same for decode_add() of codecs that touch every element; NaN for others.
  [[nodiscard]] double decode_limit() const { return k_ != 0 ? NAN : 8 / (8 + bytes_per_element()); }

 private:
  [[nodiscard]] std::uint32_t tiles() const { return static_cast<std::uint32_t>(values_.size() / kTile); }
  static std::size_t first(std::uint32_t tile) { return std::size_t{tile} * kTile; }
  std::uint8_t* at(std::uint32_t tile) { return frames_.data() + std::size_t{tile} * tile_bytes_; }
  [[nodiscard]] kernels::Tile place(std::uint32_t tile) const {
    return {.bucket = 0, .step = 0, .index = tile, .k = k_};
  }

  const codec::TileCoder& coder_;
  std::uint16_t k_;
  const std::vector<float>& values_;
  std::vector<float> residual_;
  std::vector<float> sum_;
  std::size_t tile_bytes_;
  std::vector<std::uint8_t> frames_;
};

struct Share {
  std::vector<double> time;
  std::vector<double> of_memcpy;

  void add(double copied, double took) {
    time.push_back(took);
    of_memcpy.push_back(copied / took);
  }
};

void measure(const Options& options, const codec::InstructionSet& set, const std::string& name,
             const std::vector<float>& values, std::vector<float>& copy, TextTable& table) {
  Job job(set, CodecSpec::parse(name), values);
  const std::size_t bytes = values.size() * sizeof(float);
  Share encode;
  Share decode;
  Share move;
  std::vector<double> copies;
  const auto turn = [&](Share& share, const auto& body) {
    copies.push_back(milliseconds([&] { std::memcpy(copy.data(), values.data(), bytes); }));
    share.add(copies.back(), milliseconds(body));
  };
  job.encode();
  job.decode_add();
  for (std::uint32_t round = 0; round < options.rounds; ++round) {
    turn(encode, [&] { job.encode(); });
    turn(decode, [&] { job.decode_add(); });
  }
  for (std::uint32_t round = 0; round < options.rounds; ++round) {  // later rounds overwrite frames and residual
    turn(move, [&] { job.move(); });
  }
  const auto rate = [&](const std::vector<double>& times) {
    return fixed(static_cast<double>(bytes) / 1e6 / median(times), 1);
  };
  table.add({std::string(set.name), name, rate(copies), rate(encode.time), fixed(median(encode.of_memcpy), 2),
             fixed(job.encode_limit(), 2), fixed(median(move.of_memcpy), 2), rate(decode.time),
             fixed(median(decode.of_memcpy), 2), fixed(job.decode_limit(), 2)});
}

int run(const Options& options) {
  const std::vector<float> values = test::draw(test::Distribution::lognormal_rows, std::size_t{options.mib} << 18, 1);
  std::vector<float> copy(values.size());
  TextTable table({"set", "codec", "memcpy GB/s", "encode GB/s", "of memcpy", "limit", "moved", "decode + add GB/s",
                   "of memcpy", "limit"});
  for (const std::string& name : options.codecs) {
    for (const codec::InstructionSet& set : codec::instruction_sets()) {
      if (options.sets.empty() || std::ranges::find(options.sets, set.name) != options.sets.end()) {
        measure(options, set, name, values, copy, table);
      }
    }
  }
  const std::string head =
      "bench_codec_sets: " + std::to_string(options.mib) + " MiB of f32, one thread, GB/s of input, medians of " +
      std::to_string(options.rounds) +
      " calls, each right behind a memcpy of the input. Encoding with a residual. limit: what the bytes moved allow, "
      "8 an element for memcpy, 12 and the frame's twice for encoding, 8 and the frame's for decode + add, if all go "
      "to "
      "memory. moved: a loop that moves the bytes of encoding and computes next to nothing, measured in the same "
      "way.\n";
  publish(head, table, {options.markdown});
  return 0;
}

int parse_and_run(int argc, char** argv) {
  Options options;
  CommandLine line{"Times codecs on every instruction set of this CPU, in turn with memcpy."};
  line.option("--codecs", options.codecs, "Codecs");
  line.option("--sets", options.sets, "Instruction sets, such as scalar,AVX2; all where left out");
  line.option("--mib", options.mib, "MiB of input").range(1, 4096);
  line.option("--rounds", options.rounds, "Calls of each").range(1, 10000);
  line.option("--markdown", options.markdown, "File for the table");
  line.parse(argc, argv);
  return run(options);
}

}  // namespace
}  // namespace gradwire::bench

int main(int argc, char** argv) {
  return gradwire::bench::program("bench_codec_sets", [&] { return gradwire::bench::parse_and_run(argc, argv); });
}
