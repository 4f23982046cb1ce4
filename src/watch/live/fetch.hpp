// Asks the ranks of a job for their metrics, over Unix sockets and over HTTP.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "watch/live/snapshot.hpp"

namespace gradwire::watch::live {

/// The ranks in the text that a process serves. Error(invalid_argument) for any other text.
[[nodiscard]] std::vector<RankValues> ranks_in(std::string_view text, double written);

/// What the process at the socket serves. Error(invalid_argument) says why there is nothing; it takes 2 s at most.
[[nodiscard]] std::string fetch(const std::filesystem::path& socket);
/// What the process at an address in numbers and a port serves to those with the token; empty: to everybody.
[[nodiscard]] std::string fetch(const std::string& address, std::uint16_t port, const std::string& token);

/// The number of the user who answers at a port of 127.0.0.1; none: nobody does, or the kernel does not say.
[[nodiscard]] std::optional<std::uint32_t> user_of_loopback(std::uint16_t port);

}  // namespace gradwire::watch::live
