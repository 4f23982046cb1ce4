// Whether there are descriptors for the connections that a process is about to make. Without one more the other side
// sees a connection that ends, or nothing, and can only wait.
#pragma once

#include <cstddef>
#include <string>

namespace gradwire::transport::tcp {

/// For connections with `others` processes, `per_other` each, and what else a world takes. Error(transport) names the
/// limit, its value and what is needed. `who`: how the text begins.
void check_descriptors(std::size_t others, std::size_t per_other, const std::string& who);
/// Error(transport), likewise, where not even one more can be opened.
void check_for_one_descriptor(const std::string& who);

}  // namespace gradwire::transport::tcp
