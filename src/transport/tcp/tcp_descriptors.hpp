// Checks that a process has descriptors for the connections that it is about to make. If one is missing, the other side
// only sees a connection that ends, or nothing, and can only wait.
#pragma once

#include <cstddef>
#include <string>

namespace gradwire::transport::tcp {

/// Checks for connections with `others` processes, `per_process` each, and for the other descriptors of a world.
/// Error(transport) names the limit, its value and the number needed. `who`: the beginning of the text.
void check_descriptors(std::size_t others, std::size_t per_process, const std::string& who);
/// Throws the same Error(transport) where not even one more descriptor can be opened.
void check_for_one_descriptor(const std::string& who);

}  // namespace gradwire::transport::tcp
