#include "transport/silence.hpp"

#include <algorithm>

namespace gradwire::transport {
namespace {

constexpr std::chrono::milliseconds kLeast{250};  // a busy machine may need so long to answer
constexpr std::chrono::milliseconds kMost{2000};

std::vector<int> in_order(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

std::vector<int> silent_of(const std::vector<PeerState>& peers) {
  std::vector<int> silent;
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    if (!peers[rank].answers) {
      silent.push_back(static_cast<int>(rank));
    }
  }
  return silent;
}

std::string say_silent(const std::vector<int>& silent) {
  return silent.empty() ? "every rank answers" : name_ranks(silent) + (silent.size() == 1 ? " is" : " are") + " silent";
}

std::vector<PeerState> ask(Transport& transport, std::chrono::milliseconds timeout) {
  return transport.ask(std::clamp(timeout, kLeast, kMost));
}

bool has(const std::vector<int>& ranks, int rank) { return std::find(ranks.begin(), ranks.end(), rank) != ranks.end(); }

}  // namespace

std::string name_ranks(std::vector<int> ranks) {
  ranks = in_order(std::move(ranks));
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return text;
}

std::string describe_wait(const std::vector<int>& awaited, const std::vector<PeerState>& peers) {
  const std::string waiting = "waiting for " + (awaited.empty() ? "all ranks" : name_ranks(awaited)) + ": ";
  if (peers.empty()) {
    return waiting + "is it alive, and does it make the same calls?";
  }
  const std::vector<int> silent = silent_of(peers);
  std::string others;  // ranks that are there, and the ranks that they wait for
  for (const int rank : in_order(awaited)) {
    const std::vector<int>& theirs = peers[static_cast<std::size_t>(rank)].waits_for;
    if (has(silent, rank) || theirs.empty()) {
      continue;
    }
    const bool too = std::any_of(theirs.begin(), theirs.end(), [&](int other) { return has(silent, other); });
    others += "; rank " + std::to_string(rank) + " waits for " +
              (too ? (silent.size() == 1 ? "it" : "them") + std::string(" too") : name_ranks(theirs));
  }
  if (silent.empty()) {
    return waiting + say_silent(silent) + others + "; do all make the same calls?";
  }
  return waiting + say_silent(silent) + others +
         (silent.size() == 1 ? "; is it alive, and does it make the same calls?"
                             : "; are they alive, and do they make the same calls?");
}

std::string describe_wait(Transport& transport, const std::vector<int>& awaited, std::chrono::milliseconds timeout) {
  return describe_wait(awaited, ask(transport, timeout));
}

std::string describe_silence(Transport& transport, std::chrono::milliseconds timeout) {
  const std::vector<PeerState> peers = ask(transport, timeout);
  return peers.empty() ? "" : say_silent(silent_of(peers));
}

}  // namespace gradwire::transport
