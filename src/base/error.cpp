#include "gradwire/error.hpp"

#include <new>

namespace gradwire {

std::string_view to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument: return "invalid_argument";
    case ErrorCode::unsupported: return "unsupported";
    case ErrorCode::corrupt: return "corrupt";
    case ErrorCode::mismatch: return "mismatch";
    case ErrorCode::transport: return "transport";
    case ErrorCode::timeout: return "timeout";
    case ErrorCode::aborted: return "aborted";
    case ErrorCode::out_of_memory: return "out_of_memory";
    case ErrorCode::internal: return "internal";
    case ErrorCode::expelled: return "expelled";
    case ErrorCode::too_few: return "too_few";
  }
  return "unknown";
}

Error make_error(ErrorCode code, const std::string& message, ErrorCause cause) noexcept {
  try {
    return {code, message, cause};
  } catch (const std::bad_alloc&) {
    return {code, "", cause};  // the standard library allocates nothing for an empty text
  }
}

}  // namespace gradwire
