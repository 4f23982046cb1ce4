// A transport that misbehaves on purpose, for tests. Each fault strikes once, at a send.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "gradwire/transport.hpp"

namespace gradwire::transport {

struct Fault {
  enum class Kind : std::uint8_t {
    drop,       // the send completes, but the message never leaves
    delay,      // the message leaves `delay` later, and later messages with its tag wait behind it
    corrupt,    // one byte of the message is inverted
    duplicate,  // the message leaves twice
    kill,       // it never leaves; from here on the endpoint completes nothing, tells nobody, and only hears aborts
    fail,       // post_send throws Error(transport)
  };
  Kind kind = Kind::drop;
  int rank = -1;                 // the rank whose sends match; -1: all
  std::uint64_t nth = 0;         // index of the faulty send among matching ones
  std::optional<int> peer = {};  // only sends to this rank
  std::optional<Tag> tag = {};   // only sends under this tag
  std::uint64_t offset = 0;      // corrupt: which byte, modulo the message's size
  std::chrono::microseconds delay{0};
};

/// Applies `faults` to the messages that `inner` carries. It has no native all-reduce, so every byte passes as a send.
[[nodiscard]] std::shared_ptr<Transport> make_faulty(std::shared_ptr<Transport> inner, std::vector<Fault> faults);

}  // namespace gradwire::transport
