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

/// Returns the values of all ranks in a text that a process served at the time `written`, in seconds since 1970.
/// Error(invalid_argument) if the text has no metric of gradwire.
[[nodiscard]] std::vector<RankValues> ranks_in(std::string_view text, double written);

/// Returns the text that the process at the socket serves. It takes 2 s at most. Error(invalid_argument) gives the
/// reason why there is no text.
[[nodiscard]] std::string fetch(const std::filesystem::path& socket);
/// The same over HTTP, at a numeric address and a port; `token` is sent with the request, unless it is empty.
[[nodiscard]] std::string fetch(const std::string& address, std::uint16_t port, const std::string& token);

/// Returns the number of the user whose process listens at a port of 127.0.0.1; none: there is no such process, or the
/// kernel does not tell.
[[nodiscard]] std::optional<std::uint32_t> user_of_loopback(std::uint16_t port);

}  // namespace gradwire::watch::live
