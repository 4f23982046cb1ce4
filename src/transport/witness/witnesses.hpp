// How the processes of one host are each other's witnesses: each tells each other one where it says what (its page),
// over a connection by which the system says which process that is; whoever was told watches that process.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "gradwire/processes.hpp"
#include "transport/tcp/tcp_channel.hpp"
#include "transport/tcp/tcp_packet.hpp"
#include "transport/witness/local_socket.hpp"
#include "transport/witness/witness_page.hpp"

namespace gradwire::transport::witness {

class Witnesses final : public tcp::Watched {
 public:
  using Id = Processes::Id;

  /// `nonce`: what others of the job say to this process, and nobody else knows.
  explicit Witnesses(std::uint64_t nonce, System system = System::real());
  ~Witnesses() override;

  /// The name under which others of this host announce themselves; empty: the system has no such sockets, or no memory
  /// to share, and this process sees nobody's end.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] WitnessPage* page() noexcept { return page_ ? &*page_ : nullptr; }
  /// Others say for whom they take this process; before anything else.
  void begin(Id self) noexcept { self_ = self; }

  /// To one of this host, so that it is a witness of this process, whatever becomes of it from now on. False: it
  /// cannot be. Any thread.
  bool announce(const std::string& name, std::uint64_t nonce);
  /// It has ended. By the thread that hears.
  void forget(Id who);
  /// Whether this one, which may live, takes no part any more, by its own word. By the thread that hears.
  [[nodiscard]] std::optional<tcp::EndOfProcess> own_word_of(Id who) const;
  /// Nobody sees more of this process than that it has ended. Any thread.
  void close() noexcept;

  void list(std::vector<pollfd>& polled) override;
  void look(std::span<const pollfd> polled) override;
  /// Those that were seen to end since.
  [[nodiscard]] std::vector<tcp::EndOfProcess> take_ends() { return std::exchange(ends_, {}); }

 private:
  // One that came, and has not said yet who it is.
  struct Visitor {
    tcp::Socket socket;
    tcp::Clock::time_point until;
  };
  // Of a process that is watched: one of the two is valid.
  struct Watch {
    tcp::Socket process;
    tcp::Socket socket;
    WitnessPage page;
  };

  void let_in();
  /// Whether it is done with.
  [[nodiscard]] bool hear(Visitor& visitor);
  void look_at_own();
  [[nodiscard]] bool is_other_user(const System::Peer& peer) const;

  const std::uint64_t nonce_;
  const System system_;
  Id self_ = 0;
  std::string name_;
  std::optional<WitnessPage> page_;
  tcp::Socket listener_;
  // Of the thread that hears.
  std::list<Visitor> visitors_;
  std::map<Id, Watch> watches_;
  std::vector<tcp::EndOfProcess> ends_;
  Mutex mutex_;
  std::vector<tcp::Socket> own_ GUARDED_BY(mutex_);  // by which others may watch this process
};

}  // namespace gradwire::transport::witness
