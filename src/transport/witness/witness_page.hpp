// What a process says of itself to its witnesses: memory that they share, and that is still there when it has ended.
// To say it costs a store, and waits for nobody, stopped witnesses neither.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "transport/tcp/tcp_socket.hpp"

namespace gradwire::transport::witness {

struct LastWord {
  std::uint32_t epoch = 0;  // the last that it entered
  std::uint64_t step = 0;   // the last that counts
};

class WitnessPage {
 public:
  /// Of this process. Nothing where the system has no such memory: then the process has no witness.
  [[nodiscard]] static std::optional<WitnessPage> make();
  /// Of another process, as that gave it. Nothing where it is no such memory, or could be cut off.
  [[nodiscard]] static std::optional<WitnessPage> of(tcp::Socket memory);

  WitnessPage(WitnessPage&& other) noexcept;
  WitnessPage& operator=(WitnessPage&& other) noexcept;
  ~WitnessPage();

  /// Any thread; of the own page.
  void enter(std::uint32_t epoch) noexcept { words_->epoch.store(epoch, std::memory_order_release); }
  void count(std::uint64_t step) noexcept { words_->step.store(step, std::memory_order_release); }
  void end() noexcept { words_->ended.store(1, std::memory_order_release); }
  [[nodiscard]] LastWord read() const noexcept;
  /// Whether the process has said by end() that it takes no part any more.
  [[nodiscard]] bool has_ended() const noexcept { return words_->ended.load(std::memory_order_acquire) != 0; }
  /// Of the memory that a process gave. False where it is none.
  [[nodiscard]] static bool read_once(int memory, LastWord& word) noexcept;
  /// What is given to others. Of the own page.
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
