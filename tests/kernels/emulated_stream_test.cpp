// Tests whole collectives of stream executors that compute with the kernels' own source: their results are those of the
// host executor, frame for frame and residual for residual, with a scale and without.
#include <gtest/gtest.h>

#include "tests/exchange/node_sums_harness.hpp"
#include "tests/exchange/stream_harness.hpp"

namespace gradwire::test {
namespace {

// Mutations tried: the owner's own part, or its residual, is not divided; a result is not multiplied.
TEST(EmulatedStream, PreconditionedByEveryCodec) {
  unsigned at = 0;
  for (const codec::CodecEntry& entry : codec::codecs()) {
    for (const std::uint16_t k : {0, 41}) {
      if (!entry.lossy && k == 0) {
        continue;
      }
      ++at;
      const CodecSpec codec(entry.id, k);
      Call call{.first = codec,
                .second = at % 3 == 0 ? CodecSpec::parse("exact") : codec,
                .dtype = std::array{DType::f32, DType::f16, DType::bf16, DType::f64}[at % 4],
                .count = 3 * 4096 + 300,
                .reduction = at % 2 == 0 ? Reduction::sum : Reduction::mean,
                .weighted = at % 4 < 2,
                .feedback = true,
                .preconditioned = true,
                .chunk_bytes = 1 << 12};
      Outcome host(call, 2);
      Outcome devices(call, 2);
      for (call.step = 0; call.step < 4; ++call.step) {  // the later steps have residuals, which the third one folds in
        call.algorithm = call.step == 2 ? Algorithm::one_shot : Algorithm::two_shot;
        compare(call, 2, at, &host, &devices);
      }
      if (HasFatalFailure()) {
        return;
      }
    }
  }
}

// All shards but one are encoded by one launch, and all are decoded by one.
TEST(EmulatedStream, OneLaneOfSeveralRanks) {
  unsigned at = 0;
  for (const char* spec : {"exact", "bf16", "int8", "int4", "sign", "topk(1%)+int8"}) {
    for (const DType dtype : {DType::f32, DType::f16}) {
      ++at;
      const CodecSpec codec = CodecSpec::parse(spec);
      Call call{.first = codec,
                .second = at % 3 == 0 ? CodecSpec::parse("int8") : codec,
                .dtype = dtype,
                .count = 6 * 4096 + 300,
                .reduction = at % 2 == 0 ? Reduction::sum : Reduction::mean,
                .weighted = at % 4 == 1,
                .feedback = at % 3 == 1,
                .preconditioned = at % 5 == 4,
                .zero_rank = at % 6 == 0 ? 1 : -1,
                .chunk_bytes = kOneLane};
      Outcome host(call, 4);
      Outcome devices(call, 4);
      for (call.step = 0; call.step < 2; ++call.step) {
        compare(call, 4, at, &host, &devices);
      }
      if (HasFatalFailure()) {
        return;
      }
    }
  }
}

TEST(EmulatedStream, WithoutAScale) {
  unsigned at = 0;
  for (const char* spec : {"exact", "int8", "int4", "sign", "topk(1%)+int8"}) {
    ++at;
    const CodecSpec codec = CodecSpec::parse(spec);
    compare({.first = codec,
             .second = codec,
             .count = 2 * 4096 + 5,
             .reduction = Reduction::mean,
             .weighted = at % 2 == 0,
             .feedback = at % 3 == 0},
            3, at);
  }
}

// The reference takes a launch for each frame. Mutation tried: kernels end the last shard as all others.
TEST(EmulatedStream, SeriesOfNodesSums) {
  unsigned at = 0;
  for (const char* spec : {"exact", "int8", "int4", "topk(1%)+int8"}) {
    for (const auto& [nodes, each] : {std::pair{2, 2}, std::pair{3, 2}}) {
      ++at;
      NodeCall call{.nodes = nodes,
                    .each = each,
                    .codec = CodecSpec::parse(spec),
                    .second = CodecSpec::parse(spec),
                    .inside = CodecSpec::parse(at % 4 == 3 ? "bf16" : "exact"),
                    .count = 6 * 4096 + 300,
                    .reduction = Reduction::mean,
                    .feedback = at % 3 != 0,
                    .chunk_bytes = at % 2 == 0 ? 1U << 24 : 1U << 11};
      const NodeOutcome first = compare_with_host(call, at);
      call.held.any = call.feedback;
      call.step = 1;
      compare_with_host(call, at, &first);
      if (HasFailure()) {
        return;
      }
    }
  }
}

}  // namespace
}  // namespace gradwire::test
