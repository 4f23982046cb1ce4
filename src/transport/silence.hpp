// Whom a rank waits for when nothing comes: the rank that it needs something from may itself wait for another, which is
// gone.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "gradwire/transport.hpp"

namespace gradwire::transport {

/// "rank 0", "ranks 0, 2"; in order, each once.
[[nodiscard]] std::string name_ranks(std::vector<int> ranks);

/// Asks who is there (Transport::ask): "rank 1 is silent", "every rank answers"; nothing where that cannot be asked.
[[nodiscard]] std::string describe_silence(Transport& transport, std::chrono::milliseconds timeout);

/// Asks who is there (Transport::ask) and says what became of the wait for `awaited`: "waiting for rank 0: rank 1 is
/// silent; rank 0 waits for it too; ...". `timeout`: how long was waited; asking takes no longer than that, nor than
/// two seconds.
[[nodiscard]] std::string describe_wait(Transport& transport, const std::vector<int>& awaited,
                                        std::chrono::milliseconds timeout);
/// The same from what ranks answered.
[[nodiscard]] std::string describe_wait(const std::vector<int>& awaited, const std::vector<PeerState>& peers);

}  // namespace gradwire::transport
