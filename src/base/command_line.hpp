// The command line by which this process was started.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

namespace gradwire {

/// The program and its arguments, at most `most` words in all; none where the system does not tell them.
[[nodiscard]] std::vector<std::string> own_command_line(std::size_t most = std::numeric_limits<std::size_t>::max());

}  // namespace gradwire
