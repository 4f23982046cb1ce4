// Predicts the cost of a model's step on a cluster under each codec, and advises a codec. The functions are pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cli/model_file.hpp"
#include "exchange/model/cost_model.hpp"
#include "gradwire/codec_spec.hpp"

namespace gradwire::cli {

/// A codec that may be advised, or that is only another one's second hop.
struct Candidate {
  CodecSpec codec;
  exchange::CodecCost cost;
  bool offered = true;
};

/// One codec on one cluster.
struct CodecForecast {
  CodecSpec codec;  // exact: uncompressed, the quicker of a ring and frames
  Algorithm algorithm =
      Algorithm::two_shot;  // for frames; hierarchical where nodes have several ranks and that is quicker
  exchange::StepCost step;
  double communication = 0;  // sum over all buckets in seconds
  double sent_bytes = 0;     // by one rank in a step
  std::uint64_t memory = 0;  // bytes that the session of a rank takes beside gradients: residuals, and frames at most
  bool advisable = true;     // false: it is shown, but not advised
};

/// Forecasts every candidate that is offered on `cluster`, with the buckets that a session would form (small tensors in
/// bf16, as by default). Where nodes have several ranks, codecs without topk are tried with hierarchical too (bf16
/// inside, exact with exact). It assumes that gradients become ready evenly over the backward pass, the last layer
/// first. `candidates` must hold `exact`, `bf16` and the default second hop of each. `sealed`: frames are encrypted,
/// which takes memory.
[[nodiscard]] std::vector<CodecForecast> forecast(const ModelFile& model, const exchange::Cluster& cluster,
                                                  std::span<const Candidate> candidates, bool sealed = false);

/// The index of the forecast to use, of those that are advisable: the first, in the order given (best quality first),
/// whose exposed communication is at most `target` of the step; if there is none, the first that is at most 5% slower
/// than the quickest. One of `forecasts` is advisable.
[[nodiscard]] std::size_t advise(std::span<const CodecForecast> forecasts, double target);

}  // namespace gradwire::cli
