// From the calls of one thread, alone or as a group, to what is done about them: agreement, then in an order that is
// equal on every rank what the library does itself, and what is compressed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "drop_in/device_member.hpp"

namespace gradwire::drop_in {

/// What is asked of the library; codes are its own, 0 is success.
class DeviceLibrary {
 public:
  DeviceLibrary() = default;
  DeviceLibrary(const DeviceLibrary&) = delete;
  DeviceLibrary& operator=(const DeviceLibrary&) = delete;
  virtual ~DeviceLibrary() = default;

  [[nodiscard]] virtual int start_group() = 0;
  [[nodiscard]] virtual int end_group() = 0;
  /// The code of a call that can no longer be made right.
  [[nodiscard]] virtual int failed() const noexcept = 0;
  /// One line for people.
  virtual void say(const std::string& text) = 0;
};

/// A reduction that its member may compress.
struct DeviceCall {
  std::shared_ptr<DeviceMember> member;
  Call call;
  Decision decided;  // by its member
  std::string op;
  DeviceReduce reduce;
  std::uint64_t bytes = 0;       // of the larger buffer
  std::function<int()> forward;  // has the library do it; its code
};

/// Lets the ranks of each communicator agree, where they have not. Waits for them. A member that cannot has failed and
/// says so.
void reach_agreement(std::span<const std::shared_ptr<DeviceMember>> members, DeviceLibrary& library);

/// Does and counts calls of members that have agreed, as if in one group: first, in one group of the library and in the
/// order of the calls, what is passed; then what is compressed, in the order of the communicators' identities. Ranks
/// may have put different communicators into the group, and in another order. The first code that is no success.
[[nodiscard]] int issue(std::span<const DeviceCall> calls, DeviceLibrary& library);

}  // namespace gradwire::drop_in
