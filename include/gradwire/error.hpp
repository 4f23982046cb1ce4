// The one exception type of gradwire. Every message names the thing, the place and the fix.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace gradwire {

enum class ErrorCode {
  invalid_argument,  // the caller passed something that can never work
  unsupported,       // valid, but not in this build or on this transport
  corrupt,           // bytes do not agree with their header or checksum
  mismatch,          // ranks disagree: tensors, policy, order, wire version
  transport,         // the message layer below reported a failure
  timeout,           // a peer did not answer in time; the message names it
  aborted,           // another rank, or another thread, gave up first
  out_of_memory,
  internal,  // a bug in gradwire
  expelled,  // the other ranks went on without this one, which must end
  too_few,   // fewer ranks are left than the policy's min_ranks
};
inline constexpr ErrorCode kLastErrorCode = ErrorCode::too_few;

[[nodiscard]] std::string_view to_string(ErrorCode code) noexcept;

/// Says who caused an error. The code does not tell: both a failed system call and a peer that is gone are `transport`.
enum class ErrorCause : std::uint8_t {
  rank,   // this rank alone, as by a wrong argument or for want of memory
  world,  // a peer ended, left, was reset or did not answer in time, or a rank or thread has aborted the transport
};

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message, ErrorCause cause = ErrorCause::rank)
      : std::runtime_error(message), code_(code), cause_(cause) {}
  [[nodiscard]] ErrorCode code() const noexcept { return code_; }
  [[nodiscard]] ErrorCause cause() const noexcept { return cause_; }

 private:
  ErrorCode code_;
  ErrorCause cause_;
};

/// Makes an Error where nothing may be thrown: without the text if there is no memory for it.
[[nodiscard]] Error make_error(ErrorCode code, const std::string& message,
                               ErrorCause cause = ErrorCause::rank) noexcept;

}  // namespace gradwire
