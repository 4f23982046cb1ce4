#include "gradwire/communicator.hpp"

#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "base/current_error.hpp"
#include "base/log.hpp"
#include "codec/tensor_list.hpp"
#include "collective/control.hpp"
#include "collective/host_executor.hpp"
#include "collective/launch.hpp"
#include "plan/bucket_residuals.hpp"
#include "plan/stage.hpp"
#include "session/device_pointer.hpp"
#include "wire/frame.hpp"

namespace gradwire {
namespace {

void check_view(const ConstView& view, const char* what) {
  if (element_bytes(view.dtype) == 0) {
    throw Error(ErrorCode::invalid_argument, std::string(what) + ": unknown dtype " +
                                                 std::to_string(static_cast<int>(view.dtype)) +
                                                 "; use f32, f16, bf16 or f64");
  }
  if (view.data == nullptr && view.count > 0) {
    throw Error(ErrorCode::invalid_argument,
                std::string(what) + ": null data with count " + std::to_string(view.count));
  }
  session::require_host_memory(view.data, what);
}

void check_same_type(const ConstView& input, const ConstView& output) {
  if (input.dtype != output.dtype) {
    throw Error(ErrorCode::invalid_argument, "input is " + std::string(to_string(input.dtype)) + " but output is " +
                                                 std::string(to_string(output.dtype)) + "; they must be equal");
  }
}

void check_count(const char* what, std::uint64_t got, std::uint64_t wanted) {
  if (got != wanted) {
    throw Error(ErrorCode::invalid_argument, std::string(what) + " has " + std::to_string(got) +
                                                 " elements but must have " + std::to_string(wanted));
  }
}

const std::byte* at(const void* data, std::uint64_t elements, DType dtype) {
  return data == nullptr ? nullptr : static_cast<const std::byte*>(data) + elements * element_bytes(dtype);
}
std::byte* at(void* data, std::uint64_t elements, DType dtype) {
  return data == nullptr ? nullptr : static_cast<std::byte*>(data) + elements * element_bytes(dtype);
}

// `allowed` is the one place inside `whole` where `part` may lie: in place.
void check_overlap(const ConstView& whole, const ConstView& part, const void* allowed) {
  const std::byte* begin = at(whole.data, 0, whole.dtype);
  const std::byte* part_begin = at(part.data, 0, part.dtype);
  if (whole.count == 0 || part.count == 0 || part.data == allowed) {
    return;
  }
  if (part_begin < begin + whole.count * element_bytes(whole.dtype) &&
      begin < part_begin + part.count * element_bytes(part.dtype)) {
    throw Error(ErrorCode::invalid_argument,
                "input and output overlap; give separate memory, or the same place exactly");
  }
}

std::uint8_t terms_of(const CallOptions& options) {
  return static_cast<std::uint8_t>((options.reduction == Reduction::mean ? wire::kTermMean : 0) |
                                   (options.feedback != nullptr ? wire::kTermFeedback : 0));
}

std::uint64_t sum_of(std::span<const std::uint64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

}  // namespace

struct FeedbackBuffer::State {
  std::uint64_t count = 0;
  plan::ResidualStore store = {};
  int world_size = 0;  // of the calls that left something here

  // The same answer on every rank that made the same calls.
  [[nodiscard]] bool held() const { return store.has({0, codec::EncodeSite::local}); }
};

FeedbackBuffer::FeedbackBuffer(std::uint64_t count) : state_(std::make_unique<State>(State{.count = count})) {}
FeedbackBuffer::FeedbackBuffer(FeedbackBuffer&&) noexcept = default;
FeedbackBuffer& FeedbackBuffer::operator=(FeedbackBuffer&&) noexcept = default;
FeedbackBuffer::~FeedbackBuffer() = default;
std::uint64_t FeedbackBuffer::count() const noexcept { return state_->count; }
std::uint64_t FeedbackBuffer::bytes() const { return state_->store.bytes(); }
void FeedbackBuffer::clear() { state_->store = {}; }

namespace {

// What a call does, apart from its data.
struct Prepared {
  codec::TensorList tensors;
  collective::HopCodecs codecs;
  std::function<collective::Schedule(const collective::Shape&)> schedule;
  bool whole = true;             // it encodes every element of the buffer
  plan::ResidualCall call = {};  // `owner`: it encodes twice; the rest is up to run()
};

}  // namespace

struct Communicator::State {
  std::shared_ptr<Transport> transport;
  collective::HostExecutor executor;
  collective::Control control;
  std::uint32_t calls = 0;
  bool tiers_agreed = false;

  State(std::shared_ptr<Transport> t, const CommunicatorOptions& options)
      : transport(std::move(t)),
        executor(*transport, {.timeout = options.timeout,
                              .checksum = options.checksum.value_or(transport->capabilities().checksum_by_default)}),
        control(*transport, options.timeout) {
    if (options.ranks_per_node) {
      executor.set_tiers(
          std::make_shared<const collective::Tiers>(collective::Tiers::in_rows(*options.ranks_per_node, world())));
    }
  }

  [[nodiscard]] int world() const { return transport->world_size(); }
  [[nodiscard]] int rank() const { return transport->rank(); }

  void check_counts(std::span<const std::uint64_t> counts) const {
    check_count("counts", counts.size(), static_cast<std::uint64_t>(world()));
  }

  [[nodiscard]] const collective::Tiers& tiers() const { return *executor.tiers(); }

  // A hierarchical call where the tiers allow it, on every rank alike; else a two_shot one.
  void settle_algorithm(CallOptions& options) {
    if (options.algorithm != Algorithm::hierarchical) {
      return;
    }
    if (!tiers_agreed) {
      const auto all = control.all_gather(tiers().text(), "the agreement on nodes");
      for (std::size_t rank = 0; rank < all.size(); ++rank) {
        if (all[rank] != all[0]) {
          throw Error(ErrorCode::mismatch, "ranks disagree about which of them share a node: rank 0 has " + all[0] +
                                               " (the node of each rank), rank " + std::to_string(rank) + " has " +
                                               all[rank] + "; give the same ranks_per_node on every rank");
        }
      }
      tiers_agreed = true;
      if (const std::string obstacle = tiers().obstacle(); !obstacle.empty()) {
        log(rank() == 0 ? LogLevel::info : LogLevel::debug,
            "the collective hierarchical is two_shot here: " + obstacle);
      }
    }
    if (!tiers().obstacle().empty()) {
      options.algorithm = Algorithm::two_shot;
    }
  }

  // Codecs of a call over elements of `dtype`; `encodings` is how often it encodes.
  [[nodiscard]] collective::HopCodecs codecs(const CallOptions& options, DType dtype, int encodings) const {
    const CodecSpec codec = collective::codec_for(options.algorithm, options.codec, dtype).spec();
    const bool tiered = encodings > 1 && options.algorithm == Algorithm::hierarchical;
    const CodecSpec first = tiered ? plan::intra_codec(codec, options.intra_codec) : codec;
    const int parts = tiered ? tiers().nodes() : world();
    const CodecSpec second = encodings == 1 || codec != options.codec
                                 ? codec
                                 : options.second_hop.value_or(plan::default_second_hop(codec, parts));
    const CodecSpec exact = CodecSpec::parse("exact");
    const bool carries = options.feedback != nullptr && (first == exact || codec == exact || second == exact) &&
                         (options.feedback->state_->held() || first != second || first != codec);
    return collective::hop_codecs(first, second, dtype, carries, tiered ? std::optional(codec) : std::nullopt);
  }

  // Runs what `make` returns; any error there ends the communicator on every rank.
  template <typename Make>
  Statistics run(const char* name, const CallOptions& options, Make&& make) {
    try {
      const std::uint32_t call = calls++;
      Prepared prepared = std::forward<Make>(make)();
      const auto residuals = open_residuals(options, prepared);
      const bool folds_owner = residuals && options.weighted && residuals->folds_owner(prepared.call);
      if (residuals) {
        residuals->begin(prepared.call);
      }
      const collective::Shape shape{rank(), world(), options.weighted, options.chunk_bytes, folds_owner};
      const auto execution =
          executor.start(prepared.schedule(shape), {.tensors = std::move(prepared.tensors),
                                                    .codecs = prepared.codecs,
                                                    .reduction = options.reduction,
                                                    .weighted = options.weighted,
                                                    .weight = options.weight,
                                                    .bucket = 0,
                                                    .step = call,
                                                    .residuals = residuals.get(),
                                                    .keeps_local = prepared.call.local,
                                                    .keeps_intra = prepared.call.intra,
                                                    .keeps_owner = prepared.call.owner,
                                                    .folds_owner = folds_owner,
                                                    .terms = terms_of(options),
                                                    .waits = true,
                                                    .name = "call " + std::to_string(call) + " (" + name + ")"});
      executor.wait(*execution);
      if (residuals && prepared.whole) {
        residuals->end(prepared.call);
      }
      return execution->statistics();
    } catch (...) {
      const Error error = current_error();
      executor.fail(error.code(), error.what());
      throw Error(error);
    }
  }

  std::unique_ptr<plan::BucketResiduals> open_residuals(const CallOptions& options, Prepared& prepared) const {
    if (options.feedback == nullptr) {
      prepared.call = {};
      return nullptr;
    }
    const std::uint64_t count = prepared.tensors.count();
    check_count("the feedback buffer", options.feedback->count(), count);
    FeedbackBuffer::State& state = *options.feedback->state_;
    if (state.held() && state.world_size != world()) {
      throw Error(ErrorCode::invalid_argument, "the feedback buffer holds residuals of a world of " +
                                                   std::to_string(state.world_size) + " ranks, this one has " +
                                                   std::to_string(world()) +
                                                   "; make an exact call with it in the old one first, or clear() it");
    }
    state.world_size = world();
    auto residuals = std::make_unique<plan::BucketResiduals>(options.feedback->state_->store,
                                                             std::vector<plan::BucketPart>{{.count = count}});
    const bool alone = world() == 1;
    prepared.call.local = !alone && prepared.codecs.first.lossy();
    prepared.call.intra = prepared.call.intra && !alone && prepared.codecs.node.lossy();
    prepared.call.owner = prepared.call.owner && !alone && prepared.codecs.second.lossy();
    if (!prepared.call.keeps() && !residuals->held()) {
      residuals.reset();
    }
    return residuals;
  }
};

Communicator::Communicator(std::shared_ptr<Transport> transport, CommunicatorOptions options) {
  if (transport == nullptr) {
    throw Error(ErrorCode::invalid_argument, "Communicator: transport is null");
  }
  state_ = std::make_unique<State>(std::move(transport), options);
}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

int Communicator::rank() const noexcept { return state_->rank(); }
int Communicator::world_size() const noexcept { return state_->world(); }
Transport& Communicator::transport() const noexcept { return *state_->transport; }

std::string Communicator::tiers() const {
  const collective::Tiers& tiers = state_->tiers();
  const std::string obstacle = tiers.obstacle();
  return tiers.describe() + (obstacle.empty() ? "" : "; hierarchical is two_shot here: " + obstacle);
}

Statistics Communicator::all_reduce(ConstView input, View output, const CallOptions& options) {
  CallOptions call = options;
  return state_->run("all_reduce", options, [&]() -> Prepared {
    check_view(input, "all_reduce input");
    check_view(output, "all_reduce output");
    check_same_type(input, output);
    check_count("all_reduce output", output.count, input.count);
    check_overlap(input, output, input.data);
    state_->settle_algorithm(call);
    const bool tiered = call.algorithm == Algorithm::hierarchical;
    const bool twice = collective::encodes_at_owner(call.algorithm);
    const collective::HopCodecs codecs = state_->codecs(call, input.dtype, twice ? 2 : 1);
    codec::TensorList tensors(input.dtype, codecs.first.working());
    tensors.append(input.data, output.data, input.count);
    // By what all ranks see alike, so that calls that differ in the feedback buffer meet, and say so.
    const bool in_call = call.algorithm == Algorithm::dense &&
                         collective::dense_in_call(*state_->transport, input.dtype, input.count, state_->tiers());
    const std::uint64_t native_below = codecs.first.dtype() == input.dtype ? collective::kNativeBelowBytes : 0;
    plan::ResidualCall residuals{.intra = tiered, .owner = twice, .local_count = input.count};
    residuals.set_shards(collective::Partition::even(input.count, world_size(), codecs, call.chunk_bytes), rank(),
                         tiered ? &state_->tiers() : nullptr);
    return {.tensors = std::move(tensors),
            .codecs = codecs,
            .schedule =
                [&, codecs, in_call, native_below](const collective::Shape& shape) {
                  return collective::all_reduce_over(*state_->transport, call.algorithm, codecs, input.count,
                                                     {.weighted = shape.weighted,
                                                      .folds_owner = shape.folds_owner,
                                                      .chunk_bytes = shape.chunk_bytes,
                                                      .native_below = native_below,
                                                      .asks = in_call,
                                                      .compares_terms = true,
                                                      .tiers = state_->executor.tiers()});
                },
            .call = std::move(residuals)};
  });
}

Statistics Communicator::reduce_scatter(ConstView input, View output, std::span<const std::uint64_t> counts,
                                        const CallOptions& options) {
  return state_->run("reduce_scatter", options, [&]() -> Prepared {
    check_view(input, "reduce_scatter input");
    check_view(output, "reduce_scatter output");
    check_same_type(input, output);
    state_->check_counts(counts);
    const auto self = static_cast<std::size_t>(state_->rank());
    check_count("reduce_scatter input", input.count, sum_of(counts));
    check_count("reduce_scatter output", output.count, counts[self]);
    check_overlap(input, output, at(input.data, sum_of(counts.first(self)), input.dtype));
    const collective::HopCodecs codecs = state_->codecs(options, input.dtype, 1);
    codec::TensorList tensors(input.dtype, codecs.first.working());
    std::uint64_t first = 0;
    for (std::size_t rank = 0; rank < counts.size(); ++rank) {
      tensors.append(at(input.data, first, input.dtype), rank == self ? output.data : nullptr, counts[rank]);
      first += counts[rank];
    }
    return {
        .tensors = std::move(tensors),
        .codecs = codecs,
        .schedule = [=](const collective::Shape& shape) { return collective::reduce_scatter(shape, counts, codecs); },
        .call = {.local_count = input.count}};
  });
}

Statistics Communicator::all_gather(ConstView input, View output, std::span<const std::uint64_t> counts,
                                    const CallOptions& options) {
  CallOptions plain = options;
  plain.reduction = Reduction::sum;
  plain.weighted = false;
  return state_->run("all_gather", plain, [&]() -> Prepared {
    check_view(input, "all_gather input");
    check_view(output, "all_gather output");
    check_same_type(input, output);
    state_->check_counts(counts);
    const auto self = static_cast<std::size_t>(state_->rank());
    check_count("all_gather input", input.count, counts[self]);
    check_count("all_gather output", output.count, sum_of(counts));
    check_overlap(output, input, at(output.data, sum_of(counts.first(self)), output.dtype));
    const collective::HopCodecs codecs = state_->codecs(plain, input.dtype, 1);
    codec::TensorList tensors(input.dtype, codecs.first.working());
    const std::uint64_t own_first = sum_of(counts.first(self));
    std::uint64_t first = 0;
    for (std::size_t rank = 0; rank < counts.size(); ++rank) {
      tensors.append(rank == self ? input.data : nullptr, at(output.data, first, output.dtype), counts[rank]);
      first += counts[rank];
    }
    return {.tensors = std::move(tensors),
            .codecs = codecs,
            .schedule = [=](const collective::Shape& shape) { return collective::all_gather(shape, counts, codecs); },
            .whole = false,
            .call = {.local_first = own_first, .local_count = counts[self]}};
  });
}

Statistics Communicator::broadcast(View data, int root, const CallOptions& options) {
  CallOptions plain = options;
  plain.reduction = Reduction::sum;
  plain.weighted = false;
  plain.feedback = nullptr;
  return state_->run("broadcast", plain, [&]() -> Prepared {
    check_view(data, "broadcast data");
    if (root < 0 || root >= state_->world()) {
      throw Error(ErrorCode::invalid_argument, "broadcast: root " + std::to_string(root) +
                                                   " is not a rank of a world of " + std::to_string(state_->world()));
    }
    const collective::HopCodecs codecs = state_->codecs(plain, data.dtype, 1);
    codec::TensorList tensors(data.dtype, codecs.first.working());
    tensors.append(data.data, data.data, data.count);
    return {.tensors = std::move(tensors), .codecs = codecs, .schedule = [=](const collective::Shape& shape) {
              return collective::broadcast(shape, root, data.count, codecs);
            }};
  });
}

void Communicator::barrier() {
  try {
    state_->control.barrier();
  } catch (...) {
    const Error error = current_error();
    state_->executor.fail(error.code(), error.what());
    throw Error(error);
  }
}

}  // namespace gradwire
