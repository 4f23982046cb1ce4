// What the agent of a process does. It may have been forked off a process with threads: it takes no lock, asks for no
// memory but the system's, and calls nothing of the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gradwire::transport::witness {

/// What a process and its agent say to each other, with a descriptor where there is one.
struct AgentOrder {
  static constexpr std::uint32_t kBegin = 1;       // a page, of the process `who`
  static constexpr std::uint32_t kConnection = 2;  // one to the process `who`
  static constexpr std::uint32_t kForget = 3;      // that of the process `who`
  static constexpr std::uint32_t kBroken = 4;      // of the agent: likewise
  std::uint32_t kind = 0;
  std::uint32_t who = 0;
};

class AgentProcess {
 public:
  /// What has to be done before the fork.
  static void prepare() noexcept;
  /// `orders`: from the process; `process`: can be read once that has ended (-1: the end of `orders` tells).
  AgentProcess(int orders, int process) noexcept : orders_(orders), process_(process) {}
  [[noreturn]] void run() noexcept;

 private:
  struct Connection {
    std::uint32_t who;
    int descriptor;
  };

  void leave_the_job() noexcept;
  /// False: nothing more comes.
  bool take_orders() noexcept;
  void add(std::uint32_t who, int descriptor) noexcept;
  void remove(std::uint32_t who) noexcept;
  void look_at_connections() noexcept;
  void tell() noexcept;

  int orders_;
  int process_;
  int poll_ = -1;  // of the connections
  int page_ = -1;
  std::uint32_t self_ = 0;
  std::span<Connection> room_;
  std::size_t count_ = 0;  // of them, that are there
};

}  // namespace gradwire::transport::witness
