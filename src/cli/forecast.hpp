// What a step of a model would cost on a cluster under each codec, and which codec that speaks for. Pure: same numbers
// in, same advice out.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/model_file.hpp"
#include "exchange/model/cost_model.hpp"
#include "gradwire/codec_spec.hpp"

namespace gradwire::cli {

/// A codec that may be advised, or that only serves as another one's second hop.
struct Candidate {
  CodecSpec codec;
  exchange::CodecCost cost;
  bool offered = true;
};

/// One codec on one cluster.
struct Forecast {
  CodecSpec codec;  // exact: uncompressed, the quicker of a ring and frames
  Algorithm algorithm =
      Algorithm::two_shot;  // of frames; hierarchical where nodes have several ranks and that is quicker
  exchange::StepCost step;
  double communication = 0;  // of all buckets, one after the other, in seconds
  double sent_bytes = 0;     // by one rank in a step
};

/// Every candidate that is offered on `cluster`, with the buckets that a session would form (small tensors in bf16, as
/// by default). Where nodes have several ranks, codecs without topk are tried with
/// hierarchical too (bf16 inside, exact with exact). Gradients become ready evenly over the backward pass, the last
/// layer first. `candidates` must hold `exact`, `bf16` and the default second hop of each.
[[nodiscard]] std::vector<Forecast> forecast(const ModelFile& model, const exchange::Cluster& cluster,
                                             std::span<const Candidate> candidates);

/// Which of them to use: the first, in the order given (best quality first), whose exposed communication is at most
/// `target` of the step; else the first that is at most 5% slower than the quickest. Index into `forecasts`, not empty.
[[nodiscard]] std::size_t advise(std::span<const Forecast> forecasts, double target);

}  // namespace gradwire::cli
