#include "exchange/stream/joined_calls.hpp"

#include <utility>

namespace gradwire::exchange {

JoinedCalls::Executions JoinedCalls::add(StreamExecutor& executor, StreamExecutor::Call call) {
  const StreamTask& task = call.task;
  const std::uint64_t bytes = task.count * element_bytes(task.dtype);
  const bool joins = bytes < sizes_.below && executor.joins(call.schedule, task);
  const bool alike = waiting_.empty() || waiting_[0].task.call.codecs.first.spec() == task.call.codecs.first.spec();
  Executions started;
  if (!joins || !alike) {
    started = start(executor);
  }
  waiting_.push_back(std::move(call));
  waiting_bytes_ += bytes;
  if (!joins || waiting_bytes_ >= sizes_.enough) {
    for (auto& execution : start(executor)) {
      started.push_back(std::move(execution));
    }
  }
  return started;
}

JoinedCalls::Executions JoinedCalls::start(StreamExecutor& executor) {
  waiting_bytes_ = 0;
  return waiting_.empty() ? Executions() : executor.start(std::exchange(waiting_, {}));
}

}  // namespace gradwire::exchange
