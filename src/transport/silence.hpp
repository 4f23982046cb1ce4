// Describes which ranks a rank waits for when nothing arrives: the rank whose message it needs may itself wait for
// another one, which is gone.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "gradwire/transport.hpp"

namespace gradwire::transport {

/// "rank 0", "ranks 0, 2"; in order, each once.
[[nodiscard]] std::string name_ranks(std::vector<int> ranks);

/// Asks which ranks are there (Transport::ask): "rank 1 is silent", "every rank answers"; empty where the transport
/// cannot ask.
[[nodiscard]] std::string describe_silence(Transport& transport, std::chrono::milliseconds timeout);

/// Asks which ranks are there (Transport::ask) and describes the wait for `awaited`: "waiting for rank 0: rank 1 is
/// silent; rank 0 waits for it too; ...". `timeout`: how long this rank waited; asking takes no longer than that, and
/// at most two seconds.
[[nodiscard]] std::string describe_wait(Transport& transport, const std::vector<int>& awaited,
                                        std::chrono::milliseconds timeout);
/// The same from the ranks' answers.
[[nodiscard]] std::string describe_wait(const std::vector<int>& awaited, const std::vector<PeerState>& peers);

}  // namespace gradwire::transport
