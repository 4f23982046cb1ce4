#include "bench/all_reduce/contender.hpp"

#include <mpi.h>

#include <optional>

#include "exchange/default_codecs.hpp"
#include "gradwire/emulation.hpp"
#include "gradwire/mpi.hpp"
#include "policy/stage.hpp"

namespace gradwire::bench {
namespace {

class GradwireContender : public Contender {
 public:
  GradwireContender(const Options& options, CallOptions call, bool feedback)
      : communicator_(make_emulated(mpi::make_transport(MPI_COMM_WORLD), options.link), communicator_options(options)),
        call_(call),
        with_feedback_(feedback) {
    // A fallback must not be reported as a measurement of the algorithm that was asked for.
    if (call.algorithm == Algorithm::hierarchical && communicator_.tiers().find(';') != std::string::npos) {
      throw Error(ErrorCode::invalid_argument, "bench_all_reduce: " + communicator_.tiers() + "; see --ranks-per-node");
    }
  }

  std::uint64_t all_reduce(std::span<const float> input, std::span<float> output) override {
    if (with_feedback_ && !feedback_) {
      feedback_.emplace(input.size());
      call_.feedback = &*feedback_;
    }
    return communicator_.all_reduce(view(input.data(), input.size()), view(output.data(), output.size()), call_)
        .bytes_sent;
  }

 private:
  static CommunicatorOptions communicator_options(const Options& options) {
    CommunicatorOptions communicator;
    if (options.ranks_per_node != 0) {
      communicator.ranks_per_node = options.ranks_per_node;
    }
    return communicator;
  }

  Communicator communicator_;
  CallOptions call_;
  bool with_feedback_;
  std::optional<FeedbackBuffer> feedback_;
};

class MpiContender : public Contender {
 public:
  std::uint64_t all_reduce(std::span<const float> input, std::span<float> output) override {
    MPI_Allreduce(input.data(), output.data(), static_cast<int>(input.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    int ranks = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    return static_cast<std::uint64_t>(ring_bytes(ranks, static_cast<double>(input.size_bytes())));
  }
};

}  // namespace

double ring_bytes(int ranks, double message_bytes) { return 2.0 * (ranks - 1) / ranks * message_bytes; }

ContenderRecipe gradwire_contender(const Options& options, const std::string& codec, const std::string& algorithm) {
  CallOptions call;
  call.codec = CodecSpec::parse(codec);
  call.algorithm = parse_algorithm(algorithm);
  if (options.chunk_bytes != 0) {
    call.chunk_bytes = options.chunk_bytes;
  }
  if (!options.second_hop.empty()) {
    call.second_hop = CodecSpec::parse(options.second_hop);
  }
  const bool tiered = call.algorithm == Algorithm::hierarchical;
  if (tiered) {
    call.intra_codec = exchange::intra_codec(
        call.codec, options.intra.empty() ? std::nullopt : std::optional(CodecSpec::parse(options.intra)));
  }
  const bool feedback =
      options.error_feedback == "on" || (options.error_feedback == "auto" && policy::wants_feedback(call.codec));
  return {"gradwire",
          call.codec.to_string(),
          std::string(to_string(call.algorithm)),
          [options, call, feedback] { return std::make_unique<GradwireContender>(options, call, feedback); },
          feedback,
          options.second_hop,
          tiered ? call.intra_codec->to_string() : ""};
}

ContenderRecipe mpi_contender() {
  return {"mpi", "fp32", "native", [] { return std::make_unique<MpiContender>(); }};
}

std::vector<ContenderRecipe> make_recipes(const Options& options) {
  std::vector<ContenderRecipe> recipes;
  for (const auto& codec : options.codecs) {
    for (const auto& algorithm : options.collectives) {
      recipes.push_back(gradwire_contender(options, codec, algorithm));
    }
  }
  if (options.baseline) {
    recipes.push_back(mpi_contender());
#ifdef GRADWIRE_HAVE_GLOO
    recipes.push_back(gloo_contender(options));
#endif
  }
  return recipes;
}

}  // namespace gradwire::bench
