// Small agreements between ranks beside the data: exchange of byte strings, barrier.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gradwire/transport.hpp"

namespace gradwire::collective {

class Control {
 public:
  /// A gather under way. What has not come when it is destroyed is given up.
  class Posted {
   public:
    explicit Posted(Transport& transport) : transport_(transport) {}
    Posted(const Posted&) = delete;
    Posted& operator=(const Posted&) = delete;
    ~Posted();
    /// Progress for so long at most; whether all has come. Throws nothing: what fails has not come.
    bool wait_for(std::chrono::milliseconds most) noexcept;

   private:
    friend class Control;
    struct Memory {
      std::vector<std::byte> sent;
      std::vector<std::vector<std::byte>> all;  // by rank
      std::vector<Operation> operations;
    };
    Transport& transport_;
    std::unique_ptr<Memory> memory_ = std::make_unique<Memory>();
  };

  Control(Transport& transport, std::chrono::milliseconds timeout) : transport_(transport), timeout_(timeout) {}

  /// Element r of the result is rank r's `mine`; sizes may differ. `what` is for messages. Blocks. On failure aborts
  /// the transport and throws.
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine, const std::string& what);
  /// The same for texts.
  std::vector<std::string> all_gather(const std::string& mine, const std::string& what);
  /// The same in two calls, of texts of one size: the first does not wait. Between them other calls may come, in the
  /// same order on every rank. On failure aborts the transport and throws.
  std::unique_ptr<Posted> post_all_gather(const std::string& mine);
  std::vector<std::string> complete(std::unique_ptr<Posted> posted, const std::string& what);
  void barrier();
  /// Seconds in which this rank sends `bytes` to one rank and receives as many from another, while all others do alike:
  /// in messages of `part` bytes, all in flight at once, since a few would show how far the link is and not what it
  /// carries. Ranks meet once their memory is there. On failure aborts the transport and throws.
  double time_exchange(int to, int from, std::uint64_t bytes, std::uint64_t part);

 private:
  std::unique_ptr<Posted> post(std::span<const std::byte> mine, std::span<const std::uint64_t> sizes);
  std::vector<std::vector<std::byte>> take(std::unique_ptr<Posted> posted, const std::string& what);
  std::vector<std::vector<std::byte>> exchange(std::span<const std::byte> mine, std::span<const std::uint64_t> sizes,
                                               const std::string& what);

  Transport& transport_;
  std::chrono::milliseconds timeout_;
  std::uint32_t sequence_ = 0;
};

}  // namespace gradwire::collective
