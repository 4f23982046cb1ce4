#include "gradwire/error.hpp"

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

}  // namespace gradwire
