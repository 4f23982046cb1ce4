// How the processes of one host are each other's witnesses: each gives its page to each other one, over a connection by
// which the system tells which process it is. The receiver then watches that process.
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

  /// `nonce`: a secret that only other processes of the job know, and with which they announce themselves.
  explicit Witnesses(std::uint64_t nonce, System system = System::real());
  ~Witnesses() override;

  /// The name under which others of this host announce themselves; empty: the system has no such sockets, or no memory
  /// to share, and this process sees no end.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] WitnessPage* page() noexcept { return page_ ? &*page_ : nullptr; }
  /// Sets the id by which others know this process; before anything else.
  void begin(Id self) noexcept { self_ = self; }

  /// Announces this process to another one of this host, which is its witness from now on, however this process ends.
  /// False: it cannot be. Any thread may call this.
  bool announce(const std::string& name, std::uint64_t nonce);
  /// Stops watching a process that has ended. Called by the thread that hears.
  void forget(Id who);
  /// The end that a process, which may still run, has written to its page; none: it still takes part. Called by the
  /// thread that hears.
  [[nodiscard]] std::optional<tcp::EndOfProcess> own_word_of(Id who) const;
  /// From here on witnesses only see that this process has ended. Any thread may call this.
  void close() noexcept;

  void list(std::vector<pollfd>& polled) override;
  void look(std::span<const pollfd> polled) override;
  /// The processes whose end was seen since the last call.
  [[nodiscard]] std::vector<tcp::EndOfProcess> take_ends() { return std::exchange(ends_, {}); }

 private:
  // A connection whose process has not announced itself yet.
  struct Visitor {
    tcp::Socket socket;
    tcp::Clock::time_point until;
  };
  // A watched process; one of the two sockets is valid.
  struct Watch {
    tcp::Socket process;
    tcp::Socket socket;
    WitnessPage page;
  };

  void let_in();
  /// Reads from a visitor; returns whether it can be removed.
  [[nodiscard]] bool hear(Visitor& visitor);
  void look_at_own();
  [[nodiscard]] bool is_other_user(const System::Peer& peer) const;

  const std::uint64_t nonce_;
  const System system_;
  Id self_ = 0;
  std::string name_;
  std::optional<WitnessPage> page_;
  tcp::Socket listener_;
  // Only the thread that hears uses these.
  std::list<Visitor> visitors_;
  std::map<Id, Watch> watches_;
  std::vector<tcp::EndOfProcess> ends_;
  Mutex mutex_;
  std::vector<tcp::Socket> own_ GUARDED_BY(mutex_);  // connections by which others watch this process
};

}  // namespace gradwire::transport::witness
