#include "api/shim/member.hpp"

#include <algorithm>
#include <utility>

namespace gradwire::shim {

Member::Member(const Configuration& configuration, Ledger& ledger, const Agreement& agreement, Connect connect)
    : configuration_(configuration),
      connect_(std::move(connect)),
      router_(configuration, ledger, agreement, [this](std::uint64_t value) { return all_say(value); }) {}

Member::Route Member::route(const Call& call, std::string_view op, const Origin& origin) {
  Route route{{router_.route(call, op, origin)}};
  if (router_.resets() != resets_) {
    resets_ = router_.resets();
    feedback_.clear();
  }
  if (route.keeps) {
    feedback_.resize(std::max<std::size_t>(feedback_.size(), *route.keeps + 1));
    auto& kept = feedback_[*route.keeps];
    if (!kept) {
      kept = std::make_unique<FeedbackBuffer>(call.count);
    }
    route.feedback = kept.get();
  }
  return route;
}

bool Member::all_say(std::uint64_t value) {
  Communicator& ranks = communicator();
  const std::uint64_t mine = value;
  const std::vector<std::uint64_t> counts(static_cast<std::size_t>(ranks.world_size()), 1);
  std::vector<std::uint64_t> all(counts.size());
  // `exact` copies bytes, whatever they mean.
  ranks.all_gather({&mine, 1, DType::f64}, {all.data(), all.size(), DType::f64}, counts,
                   {.codec = CodecSpec::parse("exact")});
  return std::all_of(all.begin(), all.end(), [=](std::uint64_t other) { return other == mine; });
}

Communicator& Member::communicator() {
  if (!communicator_) {
    communicator_.emplace(connect_(), CommunicatorOptions{.timeout = configuration_.timeout});
  }
  return *communicator_;
}

CallOptions Member::options(const Route& route) const {
  return {.codec = route.stage.codec,
          .algorithm = route.algorithm,
          .reduction = Reduction::sum,
          .chunk_bytes = configuration_.planner.policy().chunk_bytes,
          .second_hop = route.stage.second_hop,
          .intra_codec = route.stage.intra,
          .feedback = route.feedback};
}

void Member::all_reduce(const Route& route, ConstView input, View output) {
  router_.count(route, communicator().all_reduce(input, output, options(route)));
}

void Member::reduce_scatter(const Route& route, ConstView input, View output, std::span<const std::uint64_t> counts) {
  router_.count(route, communicator().reduce_scatter(input, output, counts, options(route)));
}

std::uint64_t Member::residual_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& kept : feedback_) {
    bytes += kept ? kept->bytes() : 0;
  }
  return bytes;
}

}  // namespace gradwire::shim
