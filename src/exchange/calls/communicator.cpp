#include "gradwire/communicator.hpp"

#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "base/current_error.hpp"
#include "base/forked.hpp"
#include "base/log.hpp"
#include "base/timeout.hpp"
#include "codec/tensor_list.hpp"
#include "exchange/calls/call_checks.hpp"
#include "exchange/calls/communicator_counts.hpp"
#include "exchange/calls/feedback_state.hpp"
#include "exchange/control.hpp"
#include "exchange/default_codecs.hpp"
#include "exchange/host/host_executor.hpp"
#include "exchange/model/algorithm_choice.hpp"
#include "exchange/model/sizes.hpp"
#include "observe/record.hpp"
#include "observe/sources.hpp"
#include "observe/watching.hpp"
#include "transport/sealed_transport.hpp"
#include "transport/shares_process.hpp"
#include "wire/frame.hpp"

namespace gradwire {
namespace {

using exchange::at;
using exchange::check_count;
using exchange::check_overlap;
using exchange::check_same_type;
using exchange::check_view;

std::uint8_t terms_of(const CallOptions& options) {
  return static_cast<std::uint8_t>((options.reduction == Reduction::mean ? wire::kTermMean : 0) |
                                   (options.feedback != nullptr ? wire::kTermFeedback : 0) |
                                   (options.weight ? wire::kTermWeighted : 0));
}

std::uint64_t sum_of(std::span<const std::uint64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

// A call, and a function that adds the caller's memory.
struct Prepared {
  exchange::CallRequest request;
  std::function<void(codec::TensorList&)> add_memory;
  bool whole = true;  // it encodes every element of the buffer
};

}  // namespace

struct Communicator::State {
  const Home home;
  std::shared_ptr<Transport> transport;
  exchange::HostExecutor executor;
  exchange::Control control;
  exchange::CommunicatorCounts counted;
  std::uint32_t calls = 0;
  bool tiers_agreed = false;
  std::optional<Link> link;  // the one in the options

  // The choice for the latest automatic all-reduce, so that equal calls need not ask the model again.
  struct Chosen {
    exchange::AllReduce call;
    exchange::AlgorithmChoice choice;
  };
  std::optional<Chosen> chosen;
  std::optional<Algorithm> latest;  // of the latest all-reduce
  bool latest_chosen = false;

  State(std::shared_ptr<Transport> t, const CommunicatorOptions& options)
      : transport(std::move(t)),
        executor(*transport,
                 {.timeout = options.timeout,
                  .checksum = options.checksum.value_or(transport->capabilities().checksum_by_default),
                  .window = {.memory_bytes = options.in_flight_bytes},
                  .source = observe::add_source({.kind = observe::Source::Kind::communicator,
                                                 .rank = transport->rank(),
                                                 .world_size = transport->world_size(),
                                                 .shares_process = transport::shares_process(*transport)})}),
        control(*transport, options.timeout),
        counted(*transport, executor.source()),
        link(options.link) {
    observe::begin_watching();
    if (options.ranks_per_node) {
      executor.set_tiers(
          std::make_shared<const exchange::Tiers>(exchange::Tiers::in_rows(*options.ranks_per_node, world())));
    }
    if (options.link) {
      executor.set_known_window(exchange::window_of(exchange::given_cluster(*options.link, *executor.tiers())));
    }
  }

  [[nodiscard]] int world() const { return transport->world_size(); }
  [[nodiscard]] int rank() const { return transport->rank(); }

  void check_counts(std::span<const std::uint64_t> counts) const {
    check_count("counts", counts.size(), static_cast<std::uint64_t>(world()));
  }

  [[nodiscard]] const exchange::Tiers& tiers() const { return *executor.tiers(); }

  // Compares the nodes and the link, on which choices depend, among the ranks.
  void agree_on_tiers(Algorithm asked) {
    if (std::exchange(tiers_agreed, true)) {
      return;
    }
    const std::string mine = tiers().text() + '\n' + (link ? link->to_string() : "none");
    const auto all = control.all_gather(mine, "the agreement on nodes");
    const auto nodes = [&](std::size_t of) { return all[of].substr(0, all[of].find('\n')); };
    const auto known = [&](std::size_t of) { return all[of].substr(all[of].find('\n') + 1); };
    for (std::size_t other = 0; other < all.size(); ++other) {
      const std::string number = std::to_string(other);
      if (nodes(other) != nodes(0)) {
        throw Error(ErrorCode::mismatch, "ranks disagree about which of them share a node: rank 0 has " + nodes(0) +
                                             " (the node of each rank), rank " + number + " has " + nodes(other) +
                                             "; give the same ranks_per_node on every rank");
      }
      if (known(other) != known(0)) {
        throw Error(ErrorCode::mismatch, "ranks disagree about the link: rank 0 has " + known(0) + ", rank " + number +
                                             " has " + known(other) + "; give the same link on every rank");
      }
    }
    if (const std::string why = tiers().why_not_hierarchical(); !why.empty() && asked == Algorithm::hierarchical) {
      log(rank() == 0 ? LogLevel::info : LogLevel::debug, "the algorithm hierarchical is two_shot here: " + why);
    }
  }

  [[nodiscard]] const exchange::AlgorithmChoice& choose(const CallOptions& options, DType dtype, std::uint64_t count) {
    const exchange::AllReduce call{.codec = options.codec,
                                   .second_hop = options.second_hop,
                                   .intra = options.intra_codec,
                                   .dtype = dtype,
                                   .count = count,
                                   .native = true};
    if (!chosen || chosen->call != call) {
      chosen = Chosen{call, exchange::choose_algorithm(call, tiers(), link)};
    }
    return chosen->choice;
  }

  // Chooses the algorithm where the caller left it open, on every rank alike. A hierarchical call becomes a two_shot
  // one where the tiers do not allow it.
  void resolve_algorithm(CallOptions& options, DType dtype, std::uint64_t count) {
    latest_chosen = options.algorithm == Algorithm::automatic;
    if (latest_chosen || options.algorithm == Algorithm::hierarchical) {
      agree_on_tiers(options.algorithm);
    }
    if (latest_chosen) {
      options.algorithm = choose(options, dtype, count).algorithm;
    }
    if (options.algorithm == Algorithm::hierarchical && !tiers().why_not_hierarchical().empty()) {
      options.algorithm = Algorithm::two_shot;
    }
    latest = options.algorithm;
  }

  // Makes the part of a request that all functions have in common.
  [[nodiscard]] exchange::CallRequest request(const CallOptions& options, DType dtype, std::uint64_t count) const {
    const bool tiered = options.algorithm == Algorithm::hierarchical;
    return {.algorithm = options.algorithm == Algorithm::automatic ? Algorithm::two_shot : options.algorithm,
            .codec = options.codec,
            .second_hop = options.second_hop.value_or(
                exchange::default_second_hop(options.codec, tiered ? tiers().nodes() : world())),
            .intra = tiered ? std::optional(exchange::intra_codec(options.codec, options.intra_codec)) : std::nullopt,
            .dtype = dtype,
            .count = count,
            .weighted = options.weight.has_value(),
            .feedback = options.feedback != nullptr,
            .chunk_bytes = exchange::ChunkSize::asked_or(options.chunk_bytes, kDefaultChunkBytes)};
  }

  // Runs what `make` returns; any error there ends the communicator on every rank.
  template <typename Make>
  Statistics run(const char* name, const CallOptions& options, Make&& make) {
    try {
      const std::uint32_t call = calls++;
      Prepared prepared = std::forward<Make>(make)();
      auto residuals =
          options.feedback == nullptr ? nullptr : options.feedback->state_->open(rank(), world(), prepared.request);
      exchange::Resolved resolved = exchange::resolve(prepared.request, {rank(), world(), executor.tiers()});
      if (resolved.call.residuals.any) {
        residuals->begin(resolved.call.residuals);
      } else {
        residuals.reset();
      }
      codec::TensorList tensors(prepared.request.dtype, resolved.call.codecs.first.working());
      prepared.add_memory(tensors);
      const auto execution =
          executor.start(std::move(resolved.schedule), {.tensors = std::move(tensors),
                                                        .call = resolved.call,
                                                        .reduction = options.reduction,
                                                        .weight = options.weight.value_or(1.0),
                                                        .bucket = 0,
                                                        .step = call,
                                                        .residuals = residuals.get(),
                                                        .terms = terms_of(options),
                                                        .waits = true,
                                                        .name = "call " + std::to_string(call) + " (" + name + ")"});
      executor.wait(*execution);
      if (residuals && prepared.whole) {
        residuals->end(resolved.call.residuals);
      }
      const Statistics statistics = execution->statistics();
      counted.add(name, prepared.request, statistics);
      return statistics;
    } catch (...) {
      const Error error = current_error();
      observe::record({.begin = observe::ticks(),
                       .bytes = static_cast<std::uint64_t>(error.code()),
                       .source = executor.source(),
                       .kind = observe::EventKind::error});
      executor.fail(error);
      throw Error(error);
    }
  }
};

Communicator::Communicator(std::shared_ptr<Transport> transport, CommunicatorOptions options) {
  if (transport == nullptr) {
    throw Error(ErrorCode::invalid_argument, "Communicator: transport is null");
  }
  transport = transport::sealed_if_keyed(std::move(transport));
  state_ = std::make_unique<State>(std::move(transport), with_checked_timeout(options, "Communicator"));
}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&& other) noexcept {
  leave_in_child(state_);
  state_ = std::move(other.state_);
  return *this;
}
Communicator::~Communicator() { leave_in_child(state_); }

int Communicator::rank() const noexcept { return state_->rank(); }
int Communicator::world_size() const noexcept { return state_->world(); }
Transport& Communicator::transport() const noexcept { return *state_->transport; }

std::string Communicator::latest_algorithm() const {
  if (!state_->latest) {
    return "";
  }
  return std::string(to_string(*state_->latest)) +
         (state_->latest_chosen && state_->chosen ? ": " + state_->chosen->choice.why : "");
}

std::string Communicator::tiers() const {
  const exchange::Tiers& tiers = state_->tiers();
  const std::string why = tiers.why_not_hierarchical();
  return tiers.describe() + (why.empty() ? "" : "; hierarchical is two_shot here: " + why);
}

Statistics Communicator::all_reduce(ConstView input, View output, const CallOptions& options) {
  CallOptions call = options;
  return state_->run("all_reduce", options, [&]() -> Prepared {
    check_view(input, "all_reduce input");
    check_view(output, "all_reduce output");
    check_same_type(input, output);
    check_count("all_reduce output", output.count, input.count);
    check_overlap(input, output, input.data);
    state_->resolve_algorithm(call, input.dtype, input.count);
    exchange::CallRequest request = state_->request(call, input.dtype, input.count);
    request.native = exchange::native_sum(*state_->transport);
    request.native.compares_terms = true;
    request.native.compares_first = options.algorithm == Algorithm::automatic;  // no rank asked for a native sum itself
    // This uses only what all ranks see alike, so that calls that differ in the feedback buffer or in weights still
    // match each other and report the difference.
    request.native.asks = call.algorithm == Algorithm::dense &&
                          exchange::dense_in_call(*state_->transport, input.dtype, input.count, state_->tiers());
    return {.request = std::move(request),
            .add_memory = [&](codec::TensorList& tensors) { tensors.append(input.data, output.data, input.count); }};
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
    exchange::CallRequest request = state_->request(options, input.dtype, input.count);
    request.collective = exchange::Collective::reduce_scatter;
    request.segments.assign(counts.begin(), counts.end());
    return {.request = std::move(request), .add_memory = [&, self](codec::TensorList& tensors) {
              std::uint64_t first = 0;
              for (std::size_t rank = 0; rank < counts.size(); ++rank) {
                tensors.append(at(input.data, first, input.dtype), rank == self ? output.data : nullptr, counts[rank]);
                first += counts[rank];
              }
            }};
  });
}

Statistics Communicator::all_gather(ConstView input, View output, std::span<const std::uint64_t> counts,
                                    const CallOptions& options) {
  CallOptions plain = options;
  plain.reduction = Reduction::sum;
  plain.weight.reset();
  return state_->run("all_gather", plain, [&]() -> Prepared {
    check_view(input, "all_gather input");
    check_view(output, "all_gather output");
    check_same_type(input, output);
    state_->check_counts(counts);
    const auto self = static_cast<std::size_t>(state_->rank());
    check_count("all_gather input", input.count, counts[self]);
    check_count("all_gather output", output.count, sum_of(counts));
    check_overlap(output, input, at(output.data, sum_of(counts.first(self)), output.dtype));
    exchange::CallRequest request = state_->request(plain, input.dtype, output.count);
    request.collective = exchange::Collective::all_gather;
    request.segments.assign(counts.begin(), counts.end());
    return {.request = std::move(request),
            .add_memory =
                [&, self](codec::TensorList& tensors) {
                  std::uint64_t first = 0;
                  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
                    tensors.append(rank == self ? input.data : nullptr, at(output.data, first, output.dtype),
                                   counts[rank]);
                    first += counts[rank];
                  }
                },
            .whole = false};
  });
}

Statistics Communicator::broadcast(View data, int root, const CallOptions& options) {
  CallOptions plain = options;
  plain.reduction = Reduction::sum;
  plain.weight.reset();
  plain.feedback = nullptr;
  if (!options.codec.named()) {
    plain.codec = CodecSpec::exact();
  }
  return state_->run("broadcast", plain, [&]() -> Prepared {
    check_view(data, "broadcast data");
    if (root < 0 || root >= state_->world()) {
      throw Error(ErrorCode::invalid_argument, "broadcast: root " + std::to_string(root) +
                                                   " is not a rank of a world of " + std::to_string(state_->world()));
    }
    exchange::CallRequest request = state_->request(plain, data.dtype, data.count);
    request.collective = exchange::Collective::broadcast;
    request.root = root;
    return {.request = std::move(request),
            .add_memory = [&](codec::TensorList& tensors) { tensors.append(data.data, data.data, data.count); }};
  });
}

void Communicator::barrier() {
  try {
    state_->control.barrier();
  } catch (...) {
    const Error error = current_error();
    state_->executor.fail(error);
    throw Error(error);
  }
}

}  // namespace gradwire
