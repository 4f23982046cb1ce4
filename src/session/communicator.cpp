#include "gradwire/communicator.hpp"

#include <numeric>
#include <string>
#include <utility>

#include "base/current_error.hpp"
#include "codec/tensor_list.hpp"
#include "collective/control.hpp"
#include "collective/host_executor.hpp"
#include "collective/launch.hpp"

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

std::uint64_t sum_of(std::span<const std::uint64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

}  // namespace

struct Communicator::State {
  std::shared_ptr<Transport> transport;
  collective::HostExecutor executor;
  collective::Control control;
  std::uint32_t calls = 0;

  State(std::shared_ptr<Transport> t, const CommunicatorOptions& options)
      : transport(std::move(t)),
        executor(*transport, {.timeout = options.timeout,
                              .checksum = options.checksum.value_or(transport->capabilities().checksum_by_default)}),
        control(*transport, options.timeout) {}

  [[nodiscard]] int world() const { return transport->world_size(); }
  [[nodiscard]] int rank() const { return transport->rank(); }

  [[nodiscard]] collective::Shape shape(const CallOptions& options) const {
    return {rank(), world(), options.weighted, options.chunk_bytes};
  }

  void check_counts(std::span<const std::uint64_t> counts) const {
    check_count("counts", counts.size(), static_cast<std::uint64_t>(world()));
  }

  // Runs `make` and what it returns; any error there ends the communicator on every rank.
  template <typename Make>
  Statistics run(const char* name, const CallOptions& options, Make&& make) {
    try {
      const std::uint32_t call = calls++;
      auto [schedule, tensors, codec] = std::forward<Make>(make)();
      const auto execution =
          executor.start(std::move(schedule), {.tensors = std::move(tensors),
                                               .codec = codec,
                                               .reduction = options.reduction,
                                               .weighted = options.weighted,
                                               .weight = options.weight,
                                               .bucket = 0,
                                               .step = call,
                                               .residuals = nullptr,
                                               .name = "call " + std::to_string(call) + " (" + name + ")"});
      executor.wait(*execution);
      return execution->statistics();
    } catch (...) {
      const Error error = current_error();
      executor.fail(error.code(), error.what());
      throw Error(error);
    }
  }
};

namespace {

struct Prepared {
  collective::Schedule schedule;
  codec::TensorList tensors;
  codec::Codec codec;
};

}  // namespace

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

Statistics Communicator::all_reduce(ConstView input, View output, const CallOptions& options) {
  return state_->run("all_reduce", options, [&]() -> Prepared {
    check_view(input, "all_reduce input");
    check_view(output, "all_reduce output");
    check_same_type(input, output);
    check_count("all_reduce output", output.count, input.count);
    check_overlap(input, output, input.data);
    const codec::Codec codec = collective::codec_for(options.algorithm, options.codec, input.dtype);
    codec::TensorList tensors(input.dtype, codec.working());
    tensors.append(input.data, output.data, input.count);
    return {collective::all_reduce_over(*state_->transport, options.algorithm, codec, input.count, options.weighted,
                                        options.chunk_bytes, false),
            std::move(tensors), codec};
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
    const codec::Codec codec = collective::codec_for(options.algorithm, options.codec, input.dtype);
    codec::TensorList tensors(input.dtype, codec.working());
    std::uint64_t first = 0;
    for (std::size_t rank = 0; rank < counts.size(); ++rank) {
      tensors.append(at(input.data, first, input.dtype), rank == self ? output.data : nullptr, counts[rank]);
      first += counts[rank];
    }
    return {collective::reduce_scatter(state_->shape(options), counts, codec), std::move(tensors), codec};
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
    const codec::Codec codec = collective::codec_for(options.algorithm, options.codec, input.dtype);
    codec::TensorList tensors(input.dtype, codec.working());
    std::uint64_t first = 0;
    for (std::size_t rank = 0; rank < counts.size(); ++rank) {
      tensors.append(rank == self ? input.data : nullptr, at(output.data, first, output.dtype), counts[rank]);
      first += counts[rank];
    }
    return {collective::all_gather(state_->shape(plain), counts, codec), std::move(tensors), codec};
  });
}

Statistics Communicator::broadcast(View data, int root, const CallOptions& options) {
  CallOptions plain = options;
  plain.reduction = Reduction::sum;
  plain.weighted = false;
  return state_->run("broadcast", plain, [&]() -> Prepared {
    check_view(data, "broadcast data");
    if (root < 0 || root >= state_->world()) {
      throw Error(ErrorCode::invalid_argument, "broadcast: root " + std::to_string(root) +
                                                   " is not a rank of a world of " + std::to_string(state_->world()));
    }
    const codec::Codec codec = collective::codec_for(options.algorithm, options.codec, data.dtype);
    codec::TensorList tensors(data.dtype, codec.working());
    tensors.append(data.data, data.data, data.count);
    return {collective::broadcast(state_->shape(plain), root, data.count, codec), std::move(tensors), codec};
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
