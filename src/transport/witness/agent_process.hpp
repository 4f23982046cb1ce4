// The code of a process's agent. It may have been forked from a process with threads, so it takes no lock, allocates no
// memory except from the system, and calls nothing of the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gradwire::transport::witness {

/// A message between a process and its agent, with a descriptor where there is one.
struct AgentOrder {
  static constexpr std::uint32_t kBegin = 1;       // the page of the process `who`
  static constexpr std::uint32_t kConnection = 2;  // a connection to the process `who`
  static constexpr std::uint32_t kForget = 3;      // drop the connection to the process `who`
  static constexpr std::uint32_t kBroken = 4;      // from the agent: its connection to the process `who` broke
  std::uint32_t kind = 0;
  std::uint32_t who = 0;
};

class AgentProcess {
 public:
  /// Does what must be done before the fork.
  static void prepare() noexcept;
  /// `orders`: messages from the process; `process`: can be read once that has ended (-1: the end of `orders` shows
  /// it).
  AgentProcess(int orders, int process) noexcept : orders_(orders), process_(process) {}
  [[noreturn]] void run() noexcept;

 private:
  struct Connection {
    std::uint32_t who;
    int descriptor;
  };

  void leave_the_job() noexcept;
  /// Reads orders; false: nothing more comes.
  bool take_orders() noexcept;
  void add(std::uint32_t who, int descriptor) noexcept;
  void remove(std::uint32_t who) noexcept;
  void look_at_connections() noexcept;
  void tell() noexcept;

  int orders_;
  int process_;
  int poll_ = -1;  // polls the connections
  int page_ = -1;
  std::uint32_t self_ = 0;
  std::span<Connection> room_;
  std::size_t count_ = 0;  // number of connections
};

}  // namespace gradwire::transport::witness
