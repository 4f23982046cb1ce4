// The events of a fake driver, for jobs over the fake library.
#pragma once

namespace gradwire::test {

/// How many events there were, and how the fake's clock goes.
struct Events {
  int made = 0;
  int recorded = 0;
  int captured = 0;
  int destroyed = 0;
  /// If set, NCCL's all-reduces take so long, and each group of messages one; the device is never behind its host.
  double milliseconds_of_sum = 0;
};
extern Events events;

}  // namespace gradwire::test
