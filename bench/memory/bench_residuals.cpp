// Times what an encoder does for each tile with residuals in f32, bf16 and int8, in turn: it loads the residual,
// encodes values plus residual into frames, and stores what is left. A store that can undo a step writes to a second
// buffer.
//   bench_residuals [--codecs int4,sign] [--mib 64] [--rounds 21] [--markdown FILE]
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/support/command_line.hpp"
#include "bench/support/report.hpp"
#include "bench/support/samples.hpp"
#include "bench/support/text_table.hpp"
#include "codec/codec.hpp"
#include "codec/registry.hpp"
#include "exchange/residuals/bucket_residuals.hpp"
#include "tests/support/distributions.hpp"

namespace gradwire::bench {
namespace {

using codec::EncodeSite;

constexpr std::uint32_t kTile = codec::kTileElements;
constexpr std::uint32_t kFrame = 16 * kTile;

struct Options {
  std::vector<std::string> codecs = {"int4", "int2", "sign", "topk(1%)+int8"};
  std::uint32_t mib = 64;
  std::uint32_t rounds = 21;
  std::string markdown;
};

class Job {
 public:
  Job(const codec::Codec& codec, const std::vector<float>& values, ResidualDType dtype, bool undo)
      : codec_(codec), values_(values), store_({.dtypes = {dtype}}), frame_(codec.frame_bytes(kFrame)) {
    store_.keep({0, EncodeSite::local}, 0, values.size());
    if (undo) {
      store_.remember();
    }
  }

  /// Returns the seconds that a step takes.
  double step() {
    const auto begin = std::chrono::steady_clock::now();
    exchange::BucketResiduals residuals(store_, {{0, 0, values_.size()}}, 1, step_++);
    for (std::uint64_t first = 0; first < values_.size(); first += kFrame) {
      codec::FrameWriter writer(codec_, {.count = kFrame}, false, frame_);
      for (std::uint64_t i = first; i < first + kFrame; i += kTile) {
        const float* before = residuals.load(EncodeSite::local, i, kTile, room_.data());
        float* after = residuals.target(EncodeSite::local, i, kTile, room_.data());
        writer.write(values_.data() + i, {before, after}, kTile);
        if (after == room_.data()) {
          residuals.store(EncodeSite::local, i, kTile, after);
        }
      }
      writer.finish();
    }
    store_.commit();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  [[nodiscard]] std::uint64_t bytes() const { return store_.bytes() + store_.second_bytes(); }

 private:
  const codec::Codec& codec_;
  const std::vector<float>& values_;
  exchange::ResidualStore store_;
  std::vector<std::byte> frame_;
  std::vector<float> room_ = std::vector<float>(kTile);
  std::uint64_t step_ = 0;
};

void measure(const Options& options, const std::string& name, bool undo, const std::vector<float>& values,
             TextTable& table) {
  const codec::Codec codec(CodecSpec::parse(name), DType::f32);
  struct Kind {
    Job job;
    std::vector<double> times = {}, ratios = {};
  };
  std::vector<std::unique_ptr<Kind>> kinds;
  for (const ResidualDType dtype : {ResidualDType::f32, ResidualDType::bf16, ResidualDType::int8}) {
    kinds.push_back(std::make_unique<Kind>(Kind{Job(codec, values, dtype, undo)}));
    kinds.back()->job.step();
  }
  for (std::uint32_t round = 0; round < options.rounds; ++round) {
    for (const auto& kind : kinds) {
      kind->times.push_back(kind->job.step());
      kind->ratios.push_back(kind->times.back() / kinds.front()->times.back());
    }
  }
  std::vector<std::string> row{name, undo ? "yes" : "no"};
  for (const auto& kind : kinds) {
    row.push_back(fixed(static_cast<double>(values.size() * sizeof(float)) / 1e9 / median(kind->times), 2));
  }
  for (std::size_t kind = 1; kind < kinds.size(); ++kind) {
    row.push_back(fixed(median(kinds[kind]->ratios), 2));
  }
  for (const auto& kind : kinds) {
    row.push_back(fixed(static_cast<double>(kind->job.bytes()) / (1 << 20), 0));
  }
  table.add(row);
}

int run(const Options& options) {
  const std::vector<float> values = test::draw(test::Distribution::lognormal_rows, std::size_t{options.mib} << 18, 1);
  TextTable table({"codec", "can undo", "f32, GB/s", "bf16, GB/s", "int8, GB/s", "time bf16 / f32", "time int8 / f32",
                   "f32, MiB", "bf16, MiB", "int8, MiB"});
  for (const std::string& name : options.codecs) {
    for (const bool undo : {false, true}) {
      measure(options, name, undo, values, table);
    }
  }
  const std::string head = "bench_residuals: encoding " + std::to_string(options.mib) +
                           " MiB of f32 gradients with residuals, one thread, " +
                           std::string(codec::active_instruction_set().name) + ", GB/s of gradients, medians of " +
                           std::to_string(options.rounds) + " rounds of all in turn; MiB of residuals.\n";
  publish(head, table, {options.markdown});
  return 0;
}

int parse_and_run(int argc, char** argv) {
  Options options;
  CommandLine line{"Times encoders with residuals in f32, bf16 and int8, in turn."};
  line.option("--codecs", options.codecs, "Codecs");
  line.option("--mib", options.mib, "MiB of gradients").range(1, 4096);
  line.option("--rounds", options.rounds, "Steps of each").range(1, 10000);
  line.option("--markdown", options.markdown, "File for the table");
  line.parse(argc, argv);
  return run(options);
}

}  // namespace
}  // namespace gradwire::bench

int main(int argc, char** argv) {
  return gradwire::bench::program("bench_residuals", [&] { return gradwire::bench::parse_and_run(argc, argv); });
}
