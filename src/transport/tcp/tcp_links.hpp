// How a process reaches the others of its job, and learns that they have ended. A connection that breaks is made anew;
// a process has ended when it says so itself, or when a witness on its host does.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "gradwire/processes.hpp"
#include "transport/tcp/tcp_agents.hpp"
#include "transport/tcp/tcp_channel.hpp"
#include "transport/tcp/tcp_introduction.hpp"
#include "transport/tcp/tcp_reception.hpp"
#include "transport/witness/agent.hpp"
#include "transport/witness/witnesses.hpp"

namespace gradwire::transport::tcp {

class Links {
 public:
  using Id = Processes::Id;
  using Heard = Processes::Heard;

  struct Own {
    Id self = 0;
    Card card = {};
    std::string host = {};
    std::vector<Listener> listeners = {};
    std::shared_ptr<witness::Witnesses> witnesses = {};
    std::shared_ptr<witness::Agent> agent = {};         // none: only processes of this host see its end
    std::shared_ptr<const ConnectionKeys> keys = {};    // encrypt all connections; null: they are in clear text
    std::function<void(Accepted accepted)> knock = {};  // takes connections of joiners; empty: no one can join
  };

  explicit Links(Own own);
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;
  ~Links();
  /// From here on connections are accepted and made, until stop(); end() does not stop that.
  void start();
  void stop() noexcept { reception_.reset(); }

  /// Adds a process. Any thread may call this. Where the sockets are not valid, messages wait until give().
  void meet(const Acquaintance& who, Socket prompt, Socket bulk);
  void give(Id who, Socket prompt, Socket bulk);
  /// Drops a process that has never sent anything. Nothing more is reported of it. Any thread may call this.
  void forget(Id who);

  // The same as in Processes; what is heard may have `message`, `ended`, `lost` or `back`.
  void send(Id to, std::span<const std::byte> message, Processes::Lane lane) noexcept;
  [[nodiscard]] std::uint64_t unsent(Id to, Processes::Lane lane) const noexcept;
  /// Whether nothing more comes over the present connection, though hear() may not have noticed that yet. Any thread
  /// may call this.
  [[nodiscard]] bool is_at_end(Id who) const noexcept;
  [[nodiscard]] std::vector<Heard> hear(std::chrono::milliseconds wait);
  void wake() noexcept;
  void end() noexcept;
  void enter(std::uint32_t epoch) noexcept;
  void count(std::uint64_t step) noexcept;
  /// Does nothing where connections are encrypted: anybody on the network can reset them.
  void trust_resets() noexcept { trusts_resets_ = own_.keys == nullptr; }

 private:
  static constexpr std::chrono::milliseconds kAnew{1000};        // a break is reported only if it lasts longer
  static constexpr std::chrono::milliseconds kBetweenDials{50};  // at first
  static constexpr std::chrono::milliseconds kBetweenLateDials{1000};
  static constexpr std::chrono::milliseconds kOtherLane{200};  // wait for the other lane after a farewell on one

  struct LaneState {
    std::uint32_t number = 0;
    bool proven = false;  // the connection was there once
    bool broken = false;
    bool gone = false;     // for good
    bool was_end = false;  // it broke in the way in which a process's end shows
    bool dialing = false;
    bool greeted = false;    // a new connection exists; the other side has not answered on it yet
    Clock::duration for_{};  // how long it has been broken, while this process ran
    Clock::time_point dials_at;
  };
  struct Peer {
    Id id = 0;
    Card card;
    std::string host;
    std::array<LaneState, 2> lanes;  // prompt, bulk
    bool lost = false;
    std::optional<EndOfProcess> end;  // its end, reported once all its messages are read
    Clock::time_point settles_at;     // when `end` is reported even if messages may still come
    bool over = false;
    bool agent_dials = false;
    bool agent_has = false;  // the agent has a connection to it
    Clock::time_point agent_dials_at;
    std::chrono::milliseconds agent_pause{0};  // pause after the last failed dial
  };
  // Lets hear() wait for news of the agent.
  class AgentWord final : public Watched {
   public:
    explicit AgentWord(Links& links) : links_(links) {}
    void list(std::vector<pollfd>& polled) override;
    void look(std::span<const pollfd> polled) override;

   private:
    Links& links_;
  };

  [[nodiscard]] bool dials(const Peer& peer) const noexcept { return own_.self > peer.id; }
  void take(Channel::Heard& one, std::vector<Heard>& heard) REQUIRES(mutex_);
  void note_break(Peer& peer, std::size_t lane, const Channel::Heard& one) REQUIRES(mutex_);
  void note_mended(Peer& peer, std::size_t lane, std::vector<Heard>& heard) REQUIRES(mutex_);
  void note_end(Id who, const EndOfProcess& end, std::chrono::milliseconds settles_in) REQUIRES(mutex_);
  void tell_of_end(const EndOfProcess& end) REQUIRES(mutex_);
  void tick(std::vector<Heard>& heard) REQUIRES(mutex_);
  void tick(Peer& peer, std::chrono::nanoseconds passed, std::vector<Heard>& heard) REQUIRES(mutex_);
  void finish(Peer& peer, std::vector<Heard>& heard) REQUIRES(mutex_);
  // Called on the reception's thread.
  void came(Accepted accepted);
  void made(Dialer::Made made);
  void give_to_agent(Peer& peer, Socket socket) REQUIRES(mutex_);

  Own own_;
  std::atomic<bool> trusts_resets_ = false;
  std::atomic<bool> closed_ = false;
  std::atomic<bool> woken_ = false;
  std::atomic<std::uint32_t> epoch_ = 0;
  std::atomic<std::uint64_t> step_ = 0;
  Channel channel_;
  mutable Mutex mutex_;
  std::map<Id, Peer> peers_ GUARDED_BY(mutex_);
  // Process and lane, by the channel's lane number.
  std::vector<std::pair<Id, std::size_t>> peer_by_lane_ GUARDED_BY(mutex_);
  Clock::time_point ticked_ GUARDED_BY(mutex_) = Clock::now();
  std::chrono::milliseconds pause_ GUARDED_BY(mutex_){0};  // longest wait before tick() must run again
  Agents agents_;
  AgentWord agent_word_{*this};
  std::unique_ptr<Reception> reception_;  // declared last: its thread calls this object
};

}  // namespace gradwire::transport::tcp
