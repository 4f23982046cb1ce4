// Counts the calls of a communicator, for metrics and reports of the job.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>

#include "exchange/resolved_call.hpp"
#include "gradwire/statistics.hpp"
#include "gradwire/transport.hpp"
#include "observe/event.hpp"

namespace gradwire::exchange {

class CommunicatorCounts {
 public:
  CommunicatorCounts(const Transport& transport, observe::SourceId source);
  CommunicatorCounts(const CommunicatorCounts&) = delete;
  CommunicatorCounts& operator=(const CommunicatorCounts&) = delete;
  ~CommunicatorCounts();

  /// Counts a call that ended, in the group of its function and codec.
  void add(std::string_view function, const CallRequest& request, const Statistics& call) noexcept;

 private:
  void count(std::string_view function, const CallRequest& request, const Statistics& call);
  void publish(bool last);

  observe::SourceId source_;
  SessionStatistics sums_;
  std::vector<std::optional<CodecSpec>> codecs_;  // the codec of each group; none: several codecs
  std::optional<std::chrono::steady_clock::time_point> published_;
};

}  // namespace gradwire::exchange
