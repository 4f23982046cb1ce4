// Lets small calls that follow each other be made together: one set of launches, and one message to each rank. Which
// calls these are depends on their order, their sizes and their codecs alone, and not on time, so that it is the same
// on every rank that makes the same calls.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "exchange/stream/stream_executor.hpp"

namespace gradwire::exchange {

/// The sizes of calls that are made together, in bytes of their tensors' dtypes. They must be the same on every rank.
struct JoinedSizes {
  std::uint64_t below = 0;   // a call joins others if it has less
  std::uint64_t enough = 0;  // calls that wait start once they have so many together
};

class JoinedCalls {
 public:
  using Executions = std::vector<std::shared_ptr<const StreamExecution>>;

  explicit JoinedCalls(JoinedSizes sizes = {}) : sizes_(sizes) {}

  /// Takes the next call. Returns the calls that it has started, in the order in which they came: none if this one
  /// waits for the next.
  [[nodiscard]] Executions add(StreamExecutor& executor, StreamExecutor::Call call);
  /// Starts the calls that wait.
  [[nodiscard]] Executions start(StreamExecutor& executor);

 private:
  JoinedSizes sizes_;
  std::vector<StreamExecutor::Call> waiting_ = {};
  std::uint64_t waiting_bytes_ = 0;
};

}  // namespace gradwire::exchange
