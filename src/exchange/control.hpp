// Small messages between ranks beside the data: exchange of byte strings, barrier.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gradwire/transport.hpp"
#include "wire/bytes.hpp"

namespace gradwire::exchange {

class Control {
 public:
  /// A gather under way. Messages that have not arrived when it is destroyed are given up.
  class Posted {
   public:
    explicit Posted(Transport& transport) : transport_(transport) {}
    Posted(const Posted&) = delete;
    Posted& operator=(const Posted&) = delete;
    ~Posted();
    /// Drives progress for at most `most`; returns whether all messages have arrived. Throws nothing: a message that
    /// fails has not arrived.
    bool wait_for(std::chrono::milliseconds most) noexcept;

   private:
    friend class Control;
    struct Memory {
      std::vector<wire::Bytes> sent;  // by rank, or one message for all ranks
      std::vector<wire::Bytes> all;   // by rank
      std::vector<Operation> operations;
    };
    Transport& transport_;
    std::unique_ptr<Memory> memory_ = std::make_unique<Memory>();
  };

  Control(Transport& transport, std::chrono::milliseconds timeout) : transport_(transport), timeout_(timeout) {}

  /// Element r of the result is rank r's `mine`; sizes may differ. `what` is for messages. Blocks. On failure aborts
  /// the transport and throws.
  std::vector<wire::Bytes> all_gather(std::span<const std::byte> mine, const std::string& what);
  /// The same for texts.
  std::vector<std::string> all_gather(const std::string& mine, const std::string& what);
  /// The same for texts of one size, in two calls, of which the first does not wait. Other calls may come between them,
  /// in the same order on every rank. On failure aborts the transport and throws.
  std::unique_ptr<Posted> post_all_gather(const std::string& mine);
  std::vector<std::string> complete(std::unique_ptr<Posted> posted, const std::string& what);
  /// Sends `to[r]` to rank r; element r of the result is what rank r sent to this one. Sizes may differ, and empty
  /// messages do not travel. `call` is the kind of exchange, 1 to 2^24 - 1: Error(mismatch) where another rank makes
  /// one of another kind. Blocks. On failure aborts the transport and throws.
  std::vector<wire::Bytes> all_to_all(std::vector<wire::Bytes> to, std::uint32_t call, const std::string& what);
  /// The same where this rank knows that rank r sends it sizes[r] bytes.
  std::vector<wire::Bytes> all_to_all(std::vector<wire::Bytes> to, std::span<const std::uint64_t> sizes,
                                      const std::string& what);
  void barrier();
  /// Seconds in which this rank sends `bytes` to one rank and receives as many from another, while all others do the
  /// same. It sends messages as small as the chunks that the link carries later, all in flight at once, since a few
  /// would measure the link's latency and not its rate. Ranks meet once they have allocated their memory. On failure
  /// aborts the transport and throws.
  double time_exchange(int to, int from, std::uint64_t bytes);

 private:
  std::unique_ptr<Posted> post(std::vector<wire::Bytes> sent, std::span<const std::uint64_t> sizes);
  [[noreturn]] void fail(ErrorCode code, const std::string& message);
  std::vector<wire::Bytes> take(std::unique_ptr<Posted> posted, const std::string& what);
  std::vector<wire::Bytes> exchange(std::span<const std::byte> mine, std::span<const std::uint64_t> sizes,
                                    const std::string& what);

  Transport& transport_;
  std::chrono::milliseconds timeout_;
  std::uint32_t sequence_ = 0;
};

}  // namespace gradwire::exchange
