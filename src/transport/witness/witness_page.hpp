// The memory that a process shares with its witnesses, which outlives it. The process writes its state there with one
// store, and waits for no witness, not even a stopped one.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "transport/tcp/tcp_socket.hpp"

namespace gradwire::transport::witness {

struct LastWord {
  std::uint32_t epoch = 0;  // the last epoch that it entered
  std::uint64_t step = 0;   // the last step that counts
};

class WitnessPage {
 public:
  /// Makes the page of this process; nothing where the system has no such memory: then the process has no witness.
  [[nodiscard]] static std::optional<WitnessPage> make();
  /// The page of another process, from the memory that it gave; nothing where it is no such memory, or could be shrunk.
  [[nodiscard]] static std::optional<WitnessPage> of(tcp::Socket memory);

  WitnessPage(WitnessPage&& other) noexcept;
  WitnessPage& operator=(WitnessPage&& other) noexcept;
  ~WitnessPage();

  /// Any thread; for the page of this process.
  void enter(std::uint32_t epoch) noexcept { words_->epoch.store(epoch, std::memory_order_release); }
  void count(std::uint64_t step) noexcept { words_->step.store(step, std::memory_order_release); }
  void end() noexcept { words_->ended.store(1, std::memory_order_release); }
  [[nodiscard]] LastWord read() const noexcept;
  /// Whether the process has said by end() that it takes no part any more.
  [[nodiscard]] bool has_ended() const noexcept { return words_->ended.load(std::memory_order_acquire) != 0; }
  /// Reads the memory that a process gave; false where it is no page.
  [[nodiscard]] static bool read_once(int memory, LastWord& word) noexcept;
  /// The descriptor to give to others; for the page of this process.
  [[nodiscard]] int memory() const noexcept { return memory_.fd(); }

 private:
  struct Words {
    std::atomic<std::uint32_t> epoch;
    std::atomic<std::uint64_t> step;
    std::atomic<std::uint32_t> ended;
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "processes share it");

  [[nodiscard]] static LastWord read(const Words& words) noexcept;

  WitnessPage(tcp::Socket memory, Words* words) noexcept : memory_(std::move(memory)), words_(words) {}
  [[nodiscard]] static std::optional<WitnessPage> map(tcp::Socket memory, bool own);

  tcp::Socket memory_;
  Words* words_ = nullptr;
};

}  // namespace gradwire::transport::witness
