#include "drop_in/host_reducer.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace gradwire::drop_in {

HostReducer::HostReducer(const Configuration& configuration, Ledger& ledger, const AgreedSettings& agreement,
                         Connect connect)
    : configuration_(configuration),
      connect_(std::move(connect)),
      router_(
          configuration, ledger, agreement, [this](std::uint64_t value) { return all_say(value); },
          [this](std::span<double> values) { make_worst(values); },
          [this](std::uint64_t bytes) { return take_scratch(2 * bytes); }) {}

HostReducer::Route HostReducer::route(const Call& call, const CallDecision& decided, std::string_view op,
                                      const Origin& origin) {
  drop_trial();
  Route route{{router_.route(call, decided, op, origin)}};
  in_trial_ = route.turn.trial;
  if (!in_trial_) {
    scratch_.reset();
  }
  if (router_.resets() != resets_) {
    resets_ = router_.resets();
    feedback_.clear();
  }
  if (route.keeps) {
    feedback_.resize(std::max<std::size_t>(feedback_.size(), *route.keeps + 1));
    auto& kept = feedback_[*route.keeps];
    if (!kept) {
      kept = std::make_unique<FeedbackBuffer>(call.count, route.residuals.dtype);
    }
    route.feedback = kept.get();
  }
  return route;
}

// Returns the numbers of all ranks, by rank. The codec `exact` copies their bytes, whatever they mean.
std::vector<double> HostReducer::gather(std::span<const double> mine) {
  Communicator& ranks = communicator();
  const std::vector<std::uint64_t> counts(static_cast<std::size_t>(ranks.world_size()), mine.size());
  std::vector<double> all(counts.size() * mine.size());
  const Statistics statistics =
      ranks.all_gather({mine.data(), mine.size(), DType::f64}, {all.data(), all.size(), DType::f64}, counts,
                       {.codec = CodecSpec::exact()});
  gathered_bytes_ = statistics.bytes_sent;
  return all;
}

bool HostReducer::all_say(std::uint64_t value) {
  const auto mine = std::bit_cast<double>(value);
  const std::vector<double> all = gather({&mine, 1});
  return std::all_of(all.begin(), all.end(),
                     [=](double other) { return std::bit_cast<std::uint64_t>(other) == value; });
}

void HostReducer::check_same(std::uint64_t value, const std::string& what) {
  if (!all_say(value)) {
    throw Error(ErrorCode::corrupt, "security: ranks do not hold the same " + what +
                                        ", although they have agreed: somebody on the network changes messages");
  }
}

void HostReducer::make_worst(std::span<double> values) {
  const std::vector<double> all = gather(values);
  for (std::size_t i = 0; i < all.size(); ++i) {
    double& value = values[i % values.size()];
    value = std::max(value, all[i]);
  }
}

Communicator& HostReducer::communicator() {
  if (!communicator_) {
    communicator_.emplace(connect_(),
                          CommunicatorOptions{.timeout = configuration_.longest_wait(),
                                              .link = configuration_.planner.policy().link,
                                              .in_flight_bytes = configuration_.planner.policy().in_flight_bytes});
    router_.set_tells(communicator_->rank() == 0);
  }
  return *communicator_;
}

CallOptions HostReducer::options(const Route& route, const policy::Stage& stage, Reduction reduction) const {
  return {.codec = stage.codec,
          .algorithm = route.algorithm,
          .reduction = reduction,
          .chunk_bytes = configuration_.planner.policy().chunk_bytes,
          .second_hop = route.second_hop,  // the stage knows no nodes
          .intra_codec = stage.intra,
          .feedback = route.feedback};
}

void HostReducer::all_reduce(const Route& route, ConstView input, View output, Reduction reduction) {
  const std::optional<CallSample> sample = keep_sample(route, input);
  Statistics statistics = communicator().all_reduce(input, output, options(route, route.stage, reduction));
  const std::string algorithm = communicator().latest_algorithm();
  const std::optional<double> error = sample ? check(*sample, output, {}, reduction, statistics) : std::nullopt;
  router_.count(route, statistics, algorithm, error);
  if (sample) {
    look_at_small_values(route, *sample);
  }
}

void HostReducer::reduce_scatter(const Route& route, ConstView input, View output,
                                 std::span<const std::uint64_t> counts, Reduction reduction) {
  const std::optional<CallSample> sample = keep_sample(route, input);
  Statistics statistics = communicator().reduce_scatter(input, output, counts, options(route, route.stage, reduction));
  const std::optional<double> error = sample ? check(*sample, output, counts, reduction, statistics) : std::nullopt;
  router_.count(route, statistics, {}, error);
  if (sample) {
    look_at_small_values(route, *sample);
  }
}

std::uint64_t HostReducer::residual_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& kept : feedback_) {
    bytes += kept ? kept->bytes() : 0;
  }
  return bytes;
}

}  // namespace gradwire::drop_in
