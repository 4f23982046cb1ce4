#include "drop_in/device_exchange.hpp"

namespace gradwire::drop_in {

bool DeviceExchange::begin_call() {
  ++calls_;
  if (calls_ < begun_at_ + kCallsApart) {
    return false;
  }
  const bool counts = under_way_;
  if (under_way_) {
    waits_ += port_.arrived() ? 0 : 1;
    port_.finish(agreed_, timeout_);
    under_way_ = false;
  }
  due_ = true;
  return counts;
}

// A group of calls may be longer than the distance between two exchanges: then the next one is enqueued behind the
// group, and counts as begun there.
void DeviceExchange::end_call(void* stream) {
  if (!due_) {
    return;
  }
  due_ = false;
  port_.begin(mine_, stream);
  begun_at_ = calls_;
  under_way_ = true;
}

}  // namespace gradwire::drop_in
