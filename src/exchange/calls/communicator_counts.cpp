#include "exchange/calls/communicator_counts.hpp"

#include <utility>

#include "observe/record.hpp"
#include "observe/sources.hpp"

namespace gradwire::exchange {
namespace {

constexpr std::size_t kMostGroups = 32;  // later ones are counted in one group, "other"

}  // namespace

CommunicatorCounts::CommunicatorCounts(const Transport& transport, observe::SourceId source) : source_(source) {
  const std::string emulation = transport.capabilities().emulation;
  sums_.transport = transport.name() + (emulation.empty() ? "" : ", " + emulation);
  sums_.rank = transport.rank();
  sums_.world_size = transport.world_size();
}

CommunicatorCounts::~CommunicatorCounts() {
  try {
    if (observe::on()) {
      publish(true);
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): no memory for it
  }
}

// A call of a microsecond must not make a snapshot each time.
void CommunicatorCounts::add(std::string_view function, const CallRequest& request, const Statistics& call) noexcept {
  constexpr std::chrono::milliseconds kInterval{500};
  if (!observe::on()) {
    return;
  }
  try {
    count(function, request, call);
    const auto now = std::chrono::steady_clock::now();
    if (!published_ || now - *published_ >= kInterval) {
      published_ = now;
      publish(false);
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): lack of memory for counts must not end a call
  }
}

void CommunicatorCounts::count(std::string_view function, const CallRequest& request, const Statistics& call) {
  const bool reduces_all = request.collective == Collective::all_reduce;
  std::size_t i = 0;
  while (i < codecs_.size() && codecs_[i] && (sums_.groups[i].name != function || *codecs_[i] != request.codec)) {
    ++i;
  }
  if (i == codecs_.size()) {
    SessionStatistics::Group group;
    const bool several = i + 1 >= kMostGroups;
    group.name = several ? "other" : std::string(function);
    group.codec = several ? "several" : request.codec.to_string();
    group.compressed = request.codec != CodecSpec::exact();
    group.sync.clear();
    codecs_.push_back(several ? std::nullopt : std::optional(request.codec));
    try {
      sums_.groups.push_back(std::move(group));
    } catch (...) {
      codecs_.pop_back();
      throw;
    }
  }
  SessionStatistics::Group& group = sums_.groups[i];
  group.totals.add(call);
  if (codecs_[i]) {
    group.algorithm = reduces_all ? std::string(to_string(request.algorithm)) : "";
  }
}

void CommunicatorCounts::publish(bool last) {
  observe::publish({.source = source_, .statistics = sums_, .last = last});
}

}  // namespace gradwire::exchange
