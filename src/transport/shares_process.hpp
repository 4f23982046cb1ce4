// Whether the ranks of a transport are threads of one process.
#pragma once

#include <string>

#include "gradwire/transport.hpp"

namespace gradwire::transport {

/// By its name, which a transport around another one has in its own.
[[nodiscard]] inline bool shares_process(const Transport& transport) {
  return transport.name().find("inproc") != std::string::npos;
}

}  // namespace gradwire::transport
