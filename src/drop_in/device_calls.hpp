// Handles the calls of one thread, alone or as a group. First the ranks agree. Then, in an order that is equal on every
// rank, the library makes the passed calls, and the others are compressed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "drop_in/device_reducer.hpp"

namespace gradwire::drop_in {

/// The requests to the library. It returns its own codes; 0 is success.
class DeviceLibrary {
 public:
  DeviceLibrary() = default;
  DeviceLibrary(const DeviceLibrary&) = delete;
  DeviceLibrary& operator=(const DeviceLibrary&) = delete;
  virtual ~DeviceLibrary() = default;

  [[nodiscard]] virtual int start_group() = 0;
  [[nodiscard]] virtual int end_group() = 0;
  /// Returns the code of a call that can no longer be made right.
  [[nodiscard]] virtual int failed() const noexcept = 0;
  /// Prints one line for people.
  virtual void say(const std::string& text) = 0;
};

/// A reduction that its reducer may compress.
struct DeviceCall {
  std::shared_ptr<DeviceReducer> reducer;
  Call call;
  CallDecision decided;  // made by its reducer
  std::string op;
  DeviceReduce reduce;
  std::uint64_t bytes = 0;       // of the larger buffer
  std::function<int()> forward;  // has the library make the call; returns its code
  DeviceReducer::LibraryCall native = {};
};

/// Lets the ranks of each communicator agree, if they have not yet, and waits for them. A reducer that cannot agree has
/// failed, and says so.
void reach_agreement(std::span<const std::shared_ptr<DeviceReducer>> reducers, DeviceLibrary& library);

/// Makes and counts calls of reducers that have agreed, as if in one group: first the passed calls, in one group of the
/// library and in the order of the calls; then the compressed ones, in the order of the communicators' identities; then
/// those that are made twice, to compare two ways, in the same order.
/// Ranks may have put different communicators into the group, and in another order. Returns the first code that is no
/// success.
[[nodiscard]] int issue(std::span<const DeviceCall> calls, DeviceLibrary& library);

}  // namespace gradwire::drop_in
