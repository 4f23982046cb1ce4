// Unix sockets that have names in folders, whose paths may be longer than the 107 bytes that the system allows.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>

namespace gradwire {

/// Makes a socket that listens at the path, with mode 0600 from its first moment. A socket of that name is replaced if
/// it is this user's and nobody listens there. Returns its descriptor, which the caller closes. Error(invalid_argument)
/// names the path and the reason.
[[nodiscard]] int listen_at(const std::filesystem::path& path);

/// Connects; returns the descriptor, which does not block, or -1 with errno.
[[nodiscard]] int connect_to(const std::filesystem::path& path) noexcept;

using Deadline = std::chrono::steady_clock::time_point;

/// Waits for `events` of poll(). False: none of them happened before the deadline.
[[nodiscard]] bool wait_before(int descriptor, short events, Deadline deadline) noexcept;
/// Sends all of the text by a descriptor that does not block. False: it could not be sent before the deadline.
[[nodiscard]] bool send_before(int descriptor, std::string_view text, Deadline deadline) noexcept;
/// Waits until bytes arrive and appends them, up to `most` bytes in `text`. Returns false at the end of the stream, at
/// the deadline, and if `text` is full.
[[nodiscard]] bool receive_before(int descriptor, std::string& text, std::size_t most, Deadline deadline);

}  // namespace gradwire
