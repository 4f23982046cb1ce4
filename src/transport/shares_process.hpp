// Whether the ranks of a transport are threads of one process.
#pragma once

#include <string>

#include "gradwire/transport.hpp"

namespace gradwire::transport {

/// Decides by the transport's name; a transport that wraps another one contains that one's name.
[[nodiscard]] inline bool shares_process(const Transport& transport) {
  return transport.name().find("inproc") != std::string::npos;
}

}  // namespace gradwire::transport
